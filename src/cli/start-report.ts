import { resolve } from "node:path";
import { FIRST_CREDITS } from "../admin/first-run.ts";
import type { RunningService } from "../app.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { SANDBOX_PROVIDER } from "../catalog/sandbox.ts";
import { DEFAULT_DATA_DIRECTORY, DEFAULT_FILE } from "../config/sources.ts";
import type { Config } from "../config.ts";
import { writeAdminToken } from "./admin-token.ts";
import { commandText, type PlaceFlags } from "./command.ts";

/**
 * Prints one line for each fact of a start. The last line is a command to paste, if there is a model. The admin token goes
 * to standard output or to a file in the data directory.
 */
export function printStart(
  config: Config,
  out: (line: string) => void,
  { facts: { version, url, store, token, adminToken }, catalog, firstOrganization }: RunningService,
  adminTokenTo: "output" | "file",
): void {
  const { organization, isOnlyOne } = firstOrganization;
  const providers = new Set(catalog.list().flatMap(({ routes }) => routes.map(({ providerId }) => providerId)));
  const flags = placeFlags(config);
  const fact = (name: string, text: string) => out(`${name.padEnd(13)} ${text}`);
  out(`Tollgate ${version}`);
  if (config.file !== null) fact("Configuration", config.file);
  fact("Store", store === "sqlite" ? `SQLite in ${config.dataDir}` : `PostgreSQL at ${placeOf(config.database)}`);
  const models = catalog.list();
  fact("Models", models.length === 0 ? "none: add a provider" : `${models.length}, from ${[...providers].join(", ")}`);
  for (const note of catalog.notes) fact("Note", note);
  if (token === null) {
    const single = `${organization.name} (${organization.id})`;
    fact("Organization", isOnlyOne ? single : `more than one; list them: ${commandText("org list", flags)}`);
    fact("Token", `to create one: ${commandText(`token create --org ${organization.id}`, flags)}`);
  } else {
    fact("Organization", `${organization.name} (${organization.id}), created with ${FIRST_CREDITS} credits`);
    fact("Token", `${token} (shown only once)`);
  }
  if (adminToken !== null) {
    fact(
      "Admin token",
      adminTokenTo === "output" ? `${adminToken} (shown only once)` : adminTokenPlace(config, adminToken),
    );
  }
  fact("URL", url);
  const model = exampleModel(models);
  if (model !== undefined) out(curlLine(url, token, model));
}

/** Returns the flags that a command in this directory needs to find the same store. */
function placeFlags({ file, dataDir }: Config): PlaceFlags {
  return {
    ...(file !== null && file !== DEFAULT_FILE && { config: resolve(file) }),
    ...(dataDir !== resolve(DEFAULT_DATA_DIRECTORY) && { dataDir }),
  };
}

/** Writes the token to a file, since standard output may be a log that others read, and returns a text about it. */
function adminTokenPlace(config: Config, token: string): string {
  try {
    return `in ${writeAdminToken(config.dataDir, token)} (keep it elsewhere, then delete the file)`;
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? "unknown error";
    const another = commandText("admin token", placeFlags(config));
    return `could not be written to the data directory (${reason}); to create another: ${another}`;
  }
}

/** Returns the model of the example: a sandbox model if there is one, otherwise the first that is not deprecated. */
function exampleModel(models: readonly CatalogModel[]): string | undefined {
  const isSandbox = ({ routes }: CatalogModel) => routes.some(({ providerId }) => providerId === SANDBOX_PROVIDER.id);
  return (models.find(isSandbox) ?? models.find(({ deprecatedSince }) => deprecatedSince === null) ?? models[0])?.id;
}

/** Returns a completion request that works as printed; after the first start, once the variable holds a token. */
function curlLine(url: string, token: string | null, model: string): string {
  const json = JSON.stringify({ model, messages: [{ role: "user", content: "Hello, Tollgate!" }] });
  // The text is between quotes of the shell, and the id of a model may contain one.
  const body = json.replaceAll("'", "'\\''");
  const authorization = token === null ? '"Authorization: Bearer $TOLLGATE_TOKEN"' : `'Authorization: Bearer ${token}'`;
  // The remaining credits go to standard error, so that standard output is only the answer.
  const after = "%{stderr}\\n%header{x-credits-available} credits left\\n";
  return `curl ${url}/v1/chat/completions -H ${authorization} -H 'Content-Type: application/json' -d '${body}' -w '${after}'`;
}

/** Returns the host and name of a database, without credentials. */
function placeOf(database: string | null): string {
  const url = database === null ? null : URL.parse(database);
  return url === null ? "its address" : `${url.host}${url.pathname}`;
}
