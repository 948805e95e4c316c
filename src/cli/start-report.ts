import { resolve } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { FIRST_CREDITS } from "../app/first-run.ts";
import type { RunningService } from "../app.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { SANDBOX_PROVIDER } from "../catalog/sandbox.ts";
import { DEFAULT_DATA_DIRECTORY, DEFAULT_FILE } from "../config/sources.ts";
import type { Config } from "../config.ts";
import { installationFolder, installCommand, missingOf } from "../internals/optional-packages.ts";
import { PROVIDER_KINDS } from "../providers/index.ts";
import { describePlace } from "../stores/place.ts";
import type { Log } from "../telemetry/logger.ts";
import { writeTokenFile } from "./admin-token.ts";
import { commandText, type PlaceFlags, shellWord } from "./command.ts";

type TokenFile = Parameters<typeof writeTokenFile>[1];

/** Place for the tokens of a first start: standard output or, since that may be a log, files in the data directory. */
export type TokensTo = "output" | "files";

/** Prints a line for each fact of a start, and a command to paste. Returns the facts, with the paths of tokens in files. */
export async function printStart(
  config: Config,
  out: (line: string) => void,
  { facts, catalog, firstOrganization }: RunningService,
  tokensTo: TokensTo,
  log: Log,
): Promise<object> {
  const { version, url, token, adminToken } = facts;
  const { organization, isOnlyOne } = firstOrganization;
  const providers = new Set(catalog.list().flatMap(({ routes }) => routes.map(({ providerId }) => providerId)));
  const flags = placeFlags(config);
  const fact = (name: string, text: string) => out(`${name.padEnd(13)} ${text}`);
  out(`Tollgate ${version}`);
  if (config.file !== null) fact("Configuration", config.file);
  fact("Store", await describePlace(config));
  const models = catalog.list();
  fact("Models", models.length === 0 ? "none: add a provider" : `${models.length}, from ${[...providers].join(", ")}`);
  for (const note of catalog.notes) fact("Note", note);
  for (const missing of missingFeatures()) fact("Missing", missing);
  const another = commandText(`token create --org ${organization.id}`, flags);
  const place = (name: TokenFile, made: string | null, command: string) =>
    made === null ? null : placeToken({ ...config, tokensTo, log }, name, made, command);
  const first = place("access-token", token, another);
  const { id, name } = organization;
  if (first === null) {
    fact("Organization", isOnlyOne ? `${name} (${id})` : `more than one; list them: ${commandText("org list", flags)}`);
  } else fact("Organization", `${name} (${id}), created with ${FIRST_CREDITS} credits`);
  fact("Token", first?.text ?? `to create one: ${another}`);
  const firstAdmin = place("admin-token", adminToken, commandText("admin token", flags));
  if (firstAdmin !== null) fact("Admin token", firstAdmin.text);
  fact("URL", url);
  const model = exampleModel(models);
  if (model !== undefined) out(curlLine(url, first?.shellText ?? "$TOLLGATE_TOKEN", model));
  const shown = tokensTo === "output" ? { token, adminToken } : { token: null, adminToken: null };
  return { ...facts, ...shown, tokenFile: first?.path ?? null, adminTokenFile: firstAdmin?.path ?? null };
}

/** Optional packages by the features that need them, other than the kinds of providers. */
const FEATURE_PACKAGES = {
  "metrics and telemetry": Object.keys(packageJson.optionalDependencies).filter((name) =>
    name.startsWith("@opentelemetry/"),
  ),
  "limits shared in Redis": ["@redis/client"],
  "warnings by mail": ["nodemailer"],
  "payments by Stripe": ["stripe"],
};

/** Describes the providers and features whose optional packages are not installed, with the command that installs them. */
function missingFeatures(): string[] {
  const kinds = PROVIDER_KINDS.map(({ kind, wire }) => [`providers of kind ${kind}`, wire?.packages ?? []] as const);
  return [...kinds, ...Object.entries(FEATURE_PACKAGES)].flatMap(([name, packages]) => {
    const missing = missingOf(packages);
    return missing.length === 0 ? [] : [`${name}: ${installCommand(missing, shellWord(installationFolder()))}`];
  });
}

/** Returns the flags that a command in this directory needs to find the same store. */
function placeFlags({ file, dataDir }: Config): PlaceFlags {
  return {
    ...(file !== null && file !== DEFAULT_FILE && { config: resolve(file) }),
    ...(dataDir !== resolve(DEFAULT_DATA_DIRECTORY) && { dataDir }),
  };
}

/** Tells where a new token is. Without a `shellText` it could not be written; `another` is the command that creates another one. */
function placeToken(
  { dataDir, tokensTo, log }: { dataDir: string; tokensTo: TokensTo; log: Log },
  name: TokenFile,
  token: string,
  another: string,
): { text: string; shellText?: string; path?: string } {
  if (tokensTo === "output") return { text: `${token} (shown only once)`, shellText: token };
  try {
    const path = writeTokenFile(dataDir, name, token);
    const text = `in ${path} (keep it elsewhere, then delete the file)`;
    return { text, shellText: `$(cat ${shellWord(path)})`, path };
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? "unknown error";
    const text = `could not be written to the data directory (${reason}); to create another: ${another}`;
    // The document of --json has no place for it.
    log.warn({ file: name }, `a new token ${text}`);
    return { text };
  }
}

/** Returns the model of the example: a sandbox model if there is one, otherwise the first that is not deprecated. */
function exampleModel(models: readonly CatalogModel[]): string | undefined {
  const isSandbox = ({ routes }: CatalogModel) => routes.some(({ providerId }) => providerId === SANDBOX_PROVIDER.id);
  return (models.find(isSandbox) ?? models.find(({ deprecatedSince }) => deprecatedSince === null) ?? models[0])?.id;
}

/** Returns a completion request that works as printed; after the first start, once the variable holds a token. */
function curlLine(url: string, token: string, model: string): string {
  const json = JSON.stringify({ model, messages: [{ role: "user", content: "Hello, Tollgate!" }] });
  // The text is between quotes of the shell, and the id of a model may contain one.
  const body = json.replaceAll("'", "'\\''");
  // The remaining credits go to standard error, so that standard output is only the answer.
  const after = "%{stderr}\\n%header{x-credits-available} credits left\\n";
  return `curl ${url}/v1/chat/completions -H "Authorization: Bearer ${token}" -H 'Content-Type: application/json' -d '${body}' -w '${after}'`;
}
