import type { Import, Source, Violation } from "./source.ts";

/** What a folder of src/ may import of the others. `type:` before a file: its types alone. */
const LAYERS: Record<string, readonly string[]> = {
  contract: [],
  errors: ["contract"],
  credits: ["contract"],
  catalog: ["contract", "credits", "errors"],
  providers: ["contract", "errors"],
  stores: ["contract", "errors", "credits"],
  ledger: ["contract", "errors", "credits", "type:stores/store.ts"],
  gateway: ["contract", "errors", "credits", "catalog", "ledger", "type:providers/provider.ts"],
  accounts: ["contract", "errors", "credits", "type:stores/store.ts"],
  http: ["contract", "errors", "accounts", "catalog", "gateway", "ledger"],
  telemetry: ["contract", "errors"],
  config: ["contract", "errors", "credits"],
  version: [],
};
/** These put the parts together and may import everything. */
const ABOVE_ALL = new Set(["app", "main", "cli"]);

/** Packages that only some folders may import; every other package is free. */
const PACKAGES: Record<string, readonly string[]> = {
  pg: ["stores"],
  kysely: ["stores"],
  "node:sqlite": ["stores"],
  fastify: ["http"],
  undici: ["providers", "catalog"],
  yaml: ["config"],
  commander: ["cli", "main"],
  pino: ["telemetry", "app"],
  "gpt-tokenizer": ["gateway"],
  "@pydantic/genai-prices": ["catalog"],
};
/** Folders that may import no other package than these, and of Node's own modules none that does input or output. */
const PURE: Record<string, readonly string[]> = {
  contract: ["typebox", "ajv", "ipaddr.js"],
  errors: [],
  credits: [],
};

/** `src/stores/sqlite/sqlite.ts` lies in `stores`, `src/errors.ts` in `errors`. */
export function layerOf(path: string): string {
  const [first = ""] = path.replace(/^src\//, "").split("/");
  return first.replace(/\.tsx?$/, "");
}

/** The cases that every store must pass stand beside the seam. */
const SUITE = /^src\/stores\/contract(\.ts$|\/)/;

export function isTest(path: string): boolean {
  return path.startsWith("test/") || /\.test\.tsx?$/.test(path) || SUITE.test(path);
}

/** Each import of a source that its folder may not make. Tests may import everything. */
export function checkLayers(source: Source): Violation[] {
  if (source.path.startsWith("console/src/")) return checkConsole(source);
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

/** The console talks HTTP with the service: it shares the shapes that go over the wire, and no code. */
function checkConsole({ path, imports }: Source): Violation[] {
  const refused = imports.filter(({ target, typeOnly }) => {
    const isOwn = target === undefined || target.startsWith("console/src/");
    return !isOwn && !(typeOnly && target.startsWith("src/contract/"));
  });
  const message = "the console may import only types, of src/contract/";
  return refused.map(({ line }) => ({ path, line, rule: "layers", message }));
}

function refuseFile(layer: string, allowed: readonly string[], imported: Import, target: string): string | undefined {
  if (!target.startsWith("src/")) return target === "package.json" ? undefined : `${layer} imports ${target}`;
  const targetLayer = layerOf(target);
  if (targetLayer === layer || allowed.includes(targetLayer)) return undefined;
  const asType = allowed.includes(`type:${target.replace("src/", "")}`);
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
