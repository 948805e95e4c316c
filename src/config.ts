import { type ConfigFile, keyText, type ParseOptions, type Path, parseFile, valueOfText } from "./config/file.ts";
import { identityContradiction } from "./config/identity.ts";
import { checkValue, foundText, mistakesIn, SECRETS } from "./config/mistake.ts";
import { paymentContradiction } from "./config/payments-schema.ts";
import { addDefaults, configNode, type Settings, schemaAt } from "./config/schema.ts";
import { absolute, type ConfigSources, type Flags, readConfigText } from "./config/sources.ts";
import { pairsOfText } from "./config/telemetry-schema.ts";
import { Variables } from "./config/variables.ts";
import { parsePrice } from "./credits/price.ts";
import { OperatorError } from "./errors.ts";

type ProviderEntry = Settings["providers"][number];
export type ConfiguredProvider = Omit<ProviderEntry, "baseUrl" | "apiKey"> & {
  baseUrl: string | null;
  apiKey: string | null;
  /** Changes with the content of `credentialsFile`. */
  credentialsFileHash?: string | undefined;
};

/** All settings, validated and with defaults. */
export type Config = Omit<Settings, "database" | "redis" | "providers"> & {
  /** Null: SQLite in `dataDir`. */
  database: string | null;
  /** Null: each process counts its limits by itself. */
  redis: string | null;
  providers: ConfiguredProvider[];
  file: string | null;
  providerKeys: Record<string, string>;
  /** Environment variables that name the proxy for upstreams. */
  proxyVariables: Record<string, string>;
  /** Texts from variables and files, which may be secret: no log shows a value that contains one. */
  hidden: readonly string[];
};

const VARIABLES: Record<string, Path> = {
  PORT: ["server", "port"],
  HOST: ["server", "host"],
  DATABASE_URL: ["database"],
  REDIS_URL: ["redis"],
  TOLLGATE_DATA_DIR: ["dataDir"],
  LOG_LEVEL: ["log", "level"],
  OTEL_EXPORTER_OTLP_ENDPOINT: ["telemetry", "endpoint"],
  OTEL_EXPORTER_OTLP_HEADERS: ["telemetry", "headers"],
  OTEL_METRICS_EXPORTER: ["telemetry", "metrics"],
  OTEL_TRACES_EXPORTER: ["telemetry", "traces"],
  OTEL_SERVICE_NAME: ["telemetry", "serviceName"],
  OTEL_RESOURCE_ATTRIBUTES: ["telemetry", "resourceAttributes"],
  OTEL_TRACES_SAMPLER: ["telemetry", "sampler"],
  OTEL_TRACES_SAMPLER_ARG: ["telemetry", "sampleRatio"],
};
const FLAGS: Record<Exclude<keyof Flags, "config">, { name: string; path: Path }> = {
  port: { name: "--port", path: ["server", "port"] },
  host: { name: "--host", path: ["server", "host"] },
  dataDir: { name: "--data-dir", path: ["dataDir"] },
};
const PROXY_VARIABLES = ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"];
const NO_PROXY_VARIABLES = ["NO_PROXY", "no_proxy"];

/**
 * Reads the configuration: flags before environment before file before defaults. A mistake, also in a value that is overridden,
 * is an OperatorError. Those of the file are reported together: first references to variables, then the schema, then contradictions.
 */
export function loadConfig(sources: ConfigSources = {}): Config {
  return withVariables(sources, (variables) => readConfig(sources, variables));
}

/** Reads one group of settings without secrets, so that a missing provider key does not stop a command. Throws OperatorError. */
export function loadGroup<Name extends "credits" | "ledger" | "identity" | "warnings" | "priceLists" | "retention">(
  sources: ConfigSources,
  name: Name,
): Settings[Name] {
  return withVariables(
    sources,
    (variables) => readFileSettings(sources, { variables, only: [name], unread: SECRETS }).settings[name],
  );
}

/** Runs work with the variables of the environment. Its errors do not show the contents of files. */
function withVariables<T>({ environment = process.env, files }: ConfigSources, work: (variables: Variables) => T): T {
  const variables = new Variables(environment, files);
  try {
    return work(variables);
  } catch (error) {
    throw variables.masked(error);
  }
}

function readConfig(sources: ConfigSources, variables: Variables): Config {
  const { flags = {} } = sources;
  const set = (name: string) => variables.get(name);
  const protocol = set("OTEL_EXPORTER_OTLP_PROTOCOL") ?? "http/protobuf";
  if (protocol !== "http/protobuf") {
    throw new OperatorError(
      `OTEL_EXPORTER_OTLP_PROTOCOL is ${foundText([], protocol)}, but must be http/protobuf, the only protocol that is supported.`,
    );
  }
  const unread = sources.secrets === "unread" ? SECRETS : new Set<string>();
  const { file, settings } = readFileSettings(sources, { variables, unread });
  for (const [name, path] of Object.entries(VARIABLES)) override(settings, name, path, set(name));
  for (const [flag, { name, path }] of Object.entries(FLAGS))
    override(settings, name, path, flags[flag as keyof Flags]);
  checkTogether(settings, file);
  const { database, redis, providers, dataDir, ...rest } = settings;
  const pick = (names: readonly string[], read: (name: string) => string | undefined = set) =>
    Object.fromEntries(names.map((name) => [name, read(name)]).filter(([, value]) => value !== undefined));
  // A command that calls no provider only needs to know that there is a key.
  const keyOf = (name: string) => (unread.size > 0 ? variables.fileOf(name)?.path : undefined) ?? set(name);
  return {
    ...rest,
    dataDir: absolute(dataDir),
    database: database ?? null,
    redis: redis ?? null,
    providers: providers.map(({ baseUrl = null, apiKey = null, ...provider }) => {
      const { credentialsFile } = provider;
      const credentialsFileHash = credentialsFile && variables.hashOf(credentialsFile);
      return { ...provider, baseUrl, apiKey, ...(credentialsFileHash && { credentialsFileHash }) };
    }),
    file: file?.name ?? null,
    providerKeys: pick(sources.providerKeyVariables ?? [], keyOf),
    proxyVariables: checkedProxies(pick([...PROXY_VARIABLES, ...NO_PROXY_VARIABLES])),
    hidden: variables.hidden,
  };
}

function checkedProxies(variables: Record<string, string>): Record<string, string> {
  for (const name of PROXY_VARIABLES) {
    const found = variables[name];
    const url = found === undefined ? undefined : URL.parse(found);
    if (url === undefined || (url !== null && /^https?:$/.test(url.protocol))) continue;
    throw new OperatorError(
      `${name} is ${foundText([], found)}, but must be the http:// or https:// address of a proxy.`,
    );
  }
  return variables;
}

/** Reads and checks the file, and adds the defaults. Throws OperatorError. */
function readFileSettings(
  sources: ConfigSources,
  options: Omit<ParseOptions, "schemaAt">,
): { file: ConfigFile | undefined; settings: Settings } {
  const read = readConfigText(sources);
  const file = read && parseFile(read.name, read.text, { ...options, schemaAt });
  const values = file?.values ?? {};
  addDefaults(values, configNode);
  const mistakes = file === undefined ? [] : mistakesIn(values, [], options.unread);
  const lines = mistakes.map(({ path, text }) => `${file?.place(path)}: ${keyText(path)} ${text}`);
  if (lines.length > 0)
    throw new OperatorError(lines.toSorted(new Intl.Collator("en", { numeric: true }).compare).join("\n"));
  return { file, settings: values as unknown as Settings };
}

function override(settings: Settings, name: string, path: Path, text: string | undefined): void {
  if (text === undefined) return;
  const schema = schemaAt(path);
  const value = schema?.type === "object" ? pairsOfText(text) : valueOfText(text, schema);
  checkValue(name, path, value);
  const group = path
    .slice(0, -1)
    .reduce((node, step) => node[step] as Record<string, unknown>, settings as Record<string, unknown>);
  group[path.at(-1) ?? ""] = value;
}

function checkTogether(settings: Settings, file: ConfigFile | undefined): void {
  const mistakes: string[] = [];
  const refuse = (path: Path, text: string) =>
    mistakes.push(`${file?.place(path) ?? "the configuration"}: ${keyText(path)} ${text}`);
  for (const list of ["providers", "models"] as const) {
    const seen = new Set<string>();
    for (const [index, { id }] of settings[list].entries()) {
      if (seen.has(id)) refuse([list, index, "id"], `is ${JSON.stringify(id)} a second time. Ids must be unique.`);
      seen.add(id);
    }
  }
  const contradiction = identityContradiction(settings.identity.issuers) ?? paymentContradiction(settings.payments);
  if (contradiction !== undefined) refuse(contradiction.path, contradiction.text);
  if (parsePrice("1", settings.credits) === undefined)
    refuse(["credits"], "is too high. A dollar and its markup must be at most a billion credits.");
  const { smtp, mailFrom } = settings.warnings;
  if (smtp === undefined && settings.statements.mail)
    refuse(["statements", "mail"], "is true, but warnings.smtp is missing.");
  if (smtp !== undefined && mailFrom === undefined)
    refuse(["warnings", "mailFrom"], "is missing, but must be a mail address where warnings.smtp is set.");
  const { server, metrics } = settings;
  if (metrics.port === server.port && metrics.host === server.host)
    refuse(["metrics", "port"], `is ${metrics.port}, but must be another port than server.port.`);
  const { holdSeconds, renewSeconds } = settings.ledger;
  if (renewSeconds >= holdSeconds)
    refuse(["ledger", "renewSeconds"], `is ${renewSeconds}, but must be less than ledger.holdSeconds, ${holdSeconds}.`);
  if (mistakes.length > 0) throw new OperatorError(mistakes.join("\n"));
}
