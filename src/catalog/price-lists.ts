import type { Static } from "typebox";
import { taskOf } from "../api/tasks.ts";
import type { PriceLists } from "../config/upstream-schema.ts";
import { scaledPrices, type UnitPrices } from "../credits/price.ts";
import { fail, routeAtPrices, statedPrices } from "./configured.ts";
import { type CatalogModel, type PriceList, withRoutes } from "./model.ts";

/** The price lists of the configuration, by their names. */
export type PriceListSettings = Static<typeof PriceLists>;

/** Returns a model at the prices of a list: stated ones, or its own times the factor. Throws OperatorError. */
export function atPriceList(
  model: CatalogModel,
  name: string,
  { factor, prices }: PriceListSettings[string],
  nowMs: number,
): CatalogModel {
  const key = `priceLists.${name}`;
  const own = Object.hasOwn(prices, model.id) ? prices[model.id] : undefined;
  const task = taskOf(undefined, model.capabilities);
  const stated = own && statedPrices(`${key}.prices.${model.id}`, own, { nowMs, task });
  const named = (found: UnitPrices) => ({ ...found, tier: { list: name, ...found.tier } });
  const scaled = (found: UnitPrices) => {
    const changed = scaledPrices(found, factor);
    if (changed !== undefined) return named(changed);
    const allowed = `a smaller number: a price of ${model.id} would be above a billion credits`;
    return fail(`${key}.factor`, `found ${factor}`, allowed);
  };
  const routes = model.routes.map((route) =>
    stated === undefined ? repriced(route, scaled) : repriced(routeAtPrices(route, stated), named),
  );
  return withRoutes(model, routes);
}

function repriced<List extends PriceList>(list: List, change: (prices: UnitPrices) => UnitPrices): List {
  const { prices, tiers, serviceTiers, next, history } = list;
  const ofTier = Object.entries(serviceTiers ?? {}).map(([tier, own]) => [tier, repriced(own, change)] as const);
  return {
    ...list,
    prices: change(prices),
    ...(tiers && { tiers: tiers.map((tier) => ({ ...tier, prices: change(tier.prices) })) }),
    ...(serviceTiers && { serviceTiers: Object.fromEntries(ofTier) }),
    ...(next && { next: repriced(next, change) }),
    ...(history && { history: history.map((dated) => ({ ...dated, prices: change(dated.prices) })) }),
  };
}
