import { OperatorError } from "../errors.ts";
import { LOCAL_SERVERS } from "../providers/local-servers.ts";
import type { CatalogModel } from "./model.ts";
import { SANDBOX_PROVIDER } from "./sandbox.ts";

/** Models by the names that the configuration gives them: a name, or the beginning of names with a `*`. */
export type AliasSettings = Readonly<Record<string, string>>;

/** The names that Claude Code and other clients of Anthropic ask for if they have no setting of a model. */
const DEFAULT_ALIAS = "claude-*";

/**
 * Returns the models that aliases name. Without settings, a catalog without configured models has one alias, so that
 * clients of Anthropic work. A model of a local server that is not found now is left out. Throws OperatorError with one
 * line that has the key, the value and the allowed values.
 */
export function resolveAliases(
  stated: AliasSettings | undefined,
  models: ReadonlyMap<string, CatalogModel>,
  hasConfiguredModels: boolean,
): ReadonlyMap<string, CatalogModel> {
  const aliases = stated ?? {};
  const resolved = new Map<string, CatalogModel>();
  for (const [alias, target] of Object.entries(aliases)) {
    const key = `aliases.${alias}`;
    const model = models.get(target);
    if (models.has(alias)) refuse(key, `found the id of a model`, "a name that no model has");
    if (model !== undefined) resolved.set(alias, model);
    else if (Object.hasOwn(aliases, target)) {
      refuse(key, `found another alias, ${JSON.stringify(target)}`, `the id of the model itself, ${aliases[target]}`);
    } else if (hasConfiguredModels || !isOfLocalServer(target)) {
      refuse(key, `found ${JSON.stringify(target)}, which is no model`, idsOf(models));
    }
  }
  const usual = stated === undefined && !hasConfiguredModels ? usualModel([...models.values()]) : undefined;
  if (usual !== undefined) resolved.set(DEFAULT_ALIAS, usual);
  return resolved;
}

function isOfLocalServer(id: string): boolean {
  return LOCAL_SERVERS.some((server) => id.startsWith(`${server.id}/`));
}

const IDS_SHOWN_MAX = 8;

function idsOf(models: ReadonlyMap<string, CatalogModel>): string {
  const ids = [...models.keys()].sort();
  return ids.length <= IDS_SHOWN_MAX ? ids.join(", ") : `${ids.slice(0, IDS_SHOWN_MAX).join(", ")}, …`;
}

/**
 * Returns the model that the default alias names: a Claude, else another model, else one of the sandbox; of those that take
 * tools the newest of the cheaper half, so that nobody pays for the most expensive model without asking for it.
 */
function usualModel(models: readonly CatalogModel[]): CatalogModel | undefined {
  const able = models.filter(
    ({ capabilities, deprecatedSince }) => capabilities.has("tools") && deprecatedSince === null,
  );
  const isBuiltIn = ({ routes }: CatalogModel) => routes[0]?.providerId === SANDBOX_PROVIDER.id;
  const others = able.filter((model) => !isBuiltIn(model));
  const claudes = others.filter(({ id }) => id.includes("claude"));
  const [first = []] = [claudes, others, able].filter((group) => group.length > 0);
  const byPrice = first.toSorted((a, b) => Number(a.prices.output - b.prices.output));
  const cheaper = byPrice.slice(0, Math.ceil(byPrice.length / 2));
  return cheaper.sort((a, b) => b.created - a.created || (a.id < b.id ? -1 : 1))[0];
}

/** Throws OperatorError with one line about a mistake in the aliases. */
function refuse(key: string, found: string, allowed: string): never {
  throw new OperatorError(`${key}: ${found}; allowed: ${allowed}`);
}
