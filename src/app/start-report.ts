import type { LiveCatalog } from "../catalog/live.ts";
import { sandboxModels } from "../catalog/sandbox.ts";
import type { Config } from "../config.ts";
import type { Store } from "../stores/store.ts";
import { FIRST_CREDITS, type Standing } from "./first-run.ts";

/** Facts of a start that are reported on the terminal. */
interface StartReport {
  version: string;
  url: string;
  store: Store["kind"];
  models: number;
  catalog: LiveCatalog;
  standing: Standing;
  adminToken: string | null;
}

/** Prints one line for each fact of a start; the last line is a command to paste. */
export function printStart(
  config: Config,
  out: (line: string) => void,
  { version, url, store, catalog, standing, adminToken }: StartReport,
): void {
  const { organization, isOnlyOne, token } = standing;
  const providers = new Set(catalog.list().flatMap(({ routes }) => routes.map(({ providerId }) => providerId)));
  const fact = (name: string, text: string) => out(`${name.padEnd(13)} ${text}`);
  out(`Tollgate ${version}`);
  if (config.file !== null) fact("Configuration", config.file);
  fact("Store", store === "sqlite" ? `SQLite in ${config.dataDir}` : `PostgreSQL at ${placeOf(config.database)}`);
  fact("Models", `${catalog.list().length}, from ${[...providers].join(", ")}`);
  for (const note of catalog.notes) fact("Note", note);
  if (token === null) {
    fact("Organization", isOnlyOne ? `${organization.name} (${organization.id})` : "several: tollgate org list");
    fact("Token", `for a new one: npx tollgate token create --org ${organization.id}`);
  } else {
    fact("Organization", `${organization.name} (${organization.id}), made now, with ${FIRST_CREDITS} credits`);
    fact("Token", `${token} (shown this once: keep it)`);
  }
  if (adminToken !== null) fact("Admin token", `${adminToken} (shown this once: keep it)`);
  fact("URL", url);
  out(curlLine(url, token));
}

/** A completion that works as printed; after the first start, once a token stands in the variable. */
function curlLine(url: string, token: string | null): string {
  const model = sandboxModels()[0]?.id;
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello, Tollgate!" }] });
  const authorization = token === null ? '"Authorization: Bearer $TOLLGATE_TOKEN"' : `'Authorization: Bearer ${token}'`;
  // What is left goes to standard error, so that standard output is the answer and nothing else.
  const after = "%{stderr}\\n%header{x-credits-available} credits left\\n";
  return `curl ${url}/v1/chat/completions -H ${authorization} -H 'Content-Type: application/json' -d '${body}' -w '${after}'`;
}

/** Where a database is, without who may use it. */
function placeOf(database: string | null): string {
  const url = database === null ? null : URL.parse(database);
  return url === null ? "its address" : `${url.host}${url.pathname}`;
}
