import type { Import, Source, Violation } from "./source.ts";

const STORE_TYPES = ["type:stores/store.ts", "type:stores/driver.ts", "type:stores/queries/"];
/** Folders and files of src/ that each folder may import. `type:` precedes a file or folder of which only types may be imported. */
export const LAYERS: Record<string, readonly string[]> = {
  api: [],
  errors: ["api"],
  credits: ["api", "type:stores/schema.ts", "type:stores/admin-schema.ts", "type:stores/table.ts"],
  telemetry: [],
  version: [],
  internals: [],
  config: ["api", "credits", "errors"],
  providers: ["api", "credits", "errors", "internals", "type:config/upstream-schema.ts"],
  catalog: [
    ...["api", "credits", "errors", "internals", "providers/registry.ts", "providers/local-servers.ts"],
    "type:config/upstream-schema.ts",
  ],
  stores: ["api", "credits", "errors", "telemetry", "internals", "version"],
  ledger: ["api", "credits", "errors", "internals", ...STORE_TYPES],
  gateway: ["api", "credits", "catalog", "errors", "ledger", "internals", "type:providers/provider.ts"],
  admin: [
    ...["api", "credits", "errors", "ledger", "internals", "config/identity.ts", "config/formats.ts"],
    ...["type:config/identity-schema.ts", ...STORE_TYPES],
  ],
  warnings: ["api", "credits", "errors", "admin", "internals", "config/formats.ts", ...STORE_TYPES],
  reports: ["api", "credits", "errors", "ledger", "internals", ...STORE_TYPES],
  payments: [
    ...["api", "credits", "errors", "ledger", "admin", "internals", "type:config/payments-schema.ts"],
    ...STORE_TYPES,
  ],
  operations: [
    ...[
      "api",
      "credits",
      "errors",
      "catalog",
      "ledger",
      "gateway",
      "admin",
      "reports",
      "type:payments/payments.ts",
      "type:payments/stripe.ts",
    ],
    ...STORE_TYPES,
  ],
  http: [
    ...["api", "credits", "errors", "catalog", "ledger", "gateway", "admin", "operations", "reports", "internals"],
    ...STORE_TYPES,
  ],
};
/** Its types may be imported by every folder. */
const LOGGER = "telemetry/logger.ts";
/** These put the parts together and may import everything. */
const ABOVE_ALL = new Set(["app", "main", "cli"]);

/** Packages that only some folders may import; every other package is free. */
const PACKAGES: Record<string, readonly string[]> = {
  pg: ["stores"],
  "node:sqlite": ["stores"],
  fastify: ["http"],
  undici: ["providers", "catalog", "warnings"],
  nodemailer: ["app", "warnings"],
  stripe: ["app", "payments"],
  yaml: ["config"],
  commander: ["cli", "main"],
  pino: ["telemetry", "app"],
  "gpt-tokenizer": ["gateway"],
  "@pydantic/genai-prices": ["catalog"],
  "@redis/client": ["app"],
  "openid-client": ["admin"],
};
/** Folders that may import no other package than these, and of Node's own modules none that does input or output. */
const PURE: Record<string, readonly string[]> = {
  api: ["typebox", "ajv", "ipaddr.js"],
  errors: [],
  credits: [],
};

/** `src/stores/sqlite/sqlite.ts` lies in `stores`, `src/errors.ts` in `errors`. */
export function layerOf(path: string): string {
  const [first = ""] = path.replace(/^src\//, "").split("/");
  return first.replace(/\.tsx?$/, "");
}

export function isTest(path: string): boolean {
  return path.startsWith("test/") || /\.test\.tsx?$/.test(path);
}

/** Each import of a source that its folder may not make. Tests may import everything. */
export function checkLayers(source: Source): Violation[] {
  if (source.path.startsWith("console/src/")) return checkConsole(source);
  if (source.path.startsWith("overspend/")) return checkOverspend(source);
  if (!source.path.startsWith("src/") || isTest(source.path)) return [];
  const layer = layerOf(source.path);
  const own = LAYERS[layer];
  if (own === undefined && !ABOVE_ALL.has(layer)) {
    return [{ path: source.path, line: 1, rule: "layers", message: `${layer} is no folder of the layout` }];
  }
  const violations: Violation[] = [];
  for (const imported of source.imports) {
    const message =
      imported.target === undefined
        ? refusePackage(layer, imported.specifier)
        : own && refuseFile(layer, own, imported, imported.target);
    if (message) violations.push({ path: source.path, line: imported.line, rule: "layers", message });
  }
  return violations;
}

/** The console uses the HTTP API: it shares the types of requests and responses, and no code. */
function checkConsole({ path, imports }: Source): Violation[] {
  const refused = imports.filter(({ target, typeOnly }) => {
    const isOwn = target === undefined || target.startsWith("console/src/");
    return !isOwn && !(typeOnly && target.startsWith("src/api/"));
  });
  const message = "the console may import only types, of src/api/";
  return refused.map(({ line }) => ({ path, line, rule: "layers", message }));
}

/** The benchmark of overspending runs without the rest and without packages; its tests run with the project's. */
function checkOverspend({ path, imports }: Source): Violation[] {
  const refused = imports.filter(({ specifier, target }) => {
    const isPackage = target === undefined && !specifier.startsWith("node:") && !specifier.startsWith(".");
    return isPackage ? !isTest(path) : target !== undefined && !target.startsWith("overspend/");
  });
  return refused.map(({ line }) => ({
    path,
    line,
    rule: "layers",
    message: "overspend/ imports only itself and Node",
  }));
}

function refuseFile(layer: string, allowed: readonly string[], imported: Import, target: string): string | undefined {
  if (!target.startsWith("src/")) return target === "package.json" ? undefined : `${layer} imports ${target}`;
  const targetLayer = layerOf(target);
  const file = target.replace("src/", "");
  if (targetLayer === layer || allowed.some((one) => one === targetLayer || one === file)) return undefined;
  const isAllowedType = (one: string) =>
    one === `type:${file}` || (one.endsWith("/") && `type:${file}`.startsWith(one));
  const asType = file === LOGGER || allowed.some(isAllowedType);
  if (asType && imported.typeOnly) return undefined;
  if (asType) return `${layer} may import only types of ${target}`;
  return `${layer} may not import ${target}; it may import ${allowed.join(", ") || "nothing of the others"}`;
}

function refusePackage(layer: string, specifier: string): string | undefined {
  if (!specifier.startsWith("node:") && specifier.startsWith(".")) return undefined;
  const [scope = "", name = ""] = specifier.split("/");
  const packageName = scope.startsWith("@") ? `${scope}/${name}` : scope;
  const pure = PURE[layer];
  if (pure !== undefined && !pure.includes(packageName)) return `${layer} may not import ${packageName}`;
  const homes = PACKAGES[packageName];
  if (homes !== undefined && !homes.includes(layer)) return `only ${homes.join(", ")} may import ${packageName}`;
  return undefined;
}
