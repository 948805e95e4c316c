import { FURTHER_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { allPrices, type Catalog, chargedPrices, type Route, upstreamOf } from "../catalog/model.ts";
import { displayPrice, type PriceTier, type UnitPrices } from "../credits/price.ts";
import { table } from "../operations/command.ts";

/** The prices of a route at a service tier, for a length of the prompt, from a day on. */
export type RoutePrices = ReturnType<typeof pricesOfRoutes>[number];

/** Lists all prices in force, and those that take effect on later days: those of the models, and of each price list. */
export function listPrices(now: Catalog, later: ReadonlyMap<string, Catalog>): RoutePrices[] {
  const changes = [...later].flatMap(([day, catalog]) => {
    return pricesOfRoutes(catalog).filter(({ prices }) => prices.tier?.from === day);
  });
  return [...pricesOfRoutes(now), ...changes];
}

function pricesOfRoutes(catalog: Catalog) {
  const ofRoute = (model: string, route: Route) =>
    allPrices(route).map((prices) => {
      return { model, route: upstreamOf(route), prices: chargedPrices({ routes: [route] }, prices) };
    });
  const all = [catalog, ...catalog.byPriceList.values()].flatMap((one) => one.list());
  return all.flatMap(({ id, routes }) => routes.flatMap((route) => ofRoute(id, route)));
}

/** Formats prices for programs; null in the condition of a price that applies to all. */
export function routePricesJson({ model, route, prices }: RoutePrices) {
  const { list = null, from = null, serviceTier = null, ...length } = prices.tier ?? {};
  const { abovePromptTokens = null, promptTokensMax = null } = length;
  const tier = { priceList: list, from, serviceTier, abovePromptTokens, promptTokensMax };
  return { model, route, ...tier, prices: pricesJson(prices) };
}

/** Formats prices: credits per million tokens, of calls credits each. */
function pricesJson(prices: UnitPrices): Record<string, number> {
  return Object.fromEntries(
    [...TOKEN_CLASSES, ...FURTHER_CLASSES].flatMap((name) => {
      const price = prices[name];
      return price === undefined ? [] : [[name, displayPrice(price, name)]];
    }),
  );
}

const HEADINGS = [
  ...["MODEL", "ROUTE", "LIST", "FROM", "TIER", "PROMPT"],
  ...["INPUT", "CACHED", "WRITTEN", "OUTPUT", "REASONING", "OTHER"],
];
const LEGEND = `Prices are credits per million tokens; those of requests, searches, images, characters and seconds credits each. CACHED
and WRITTEN are input that the provider reads from its cache and writes to it. LIST is the price list of organizations, FROM the
day on which a price takes effect.`;

/** Formats prices for people. */
export function pricesTable(rows: readonly RoutePrices[]): string {
  const cells = rows.map(({ model, route, prices }) => {
    const { list = "", from = "", serviceTier = "usual" } = prices.tier ?? {};
    const figures = pricesJson(prices);
    const classes = TOKEN_CLASSES.map((tokenClass) => String(figures[tokenClass]));
    const others = FURTHER_CLASSES.filter((name) => name in figures).map((name) => `${name} ${figures[name]}`);
    return [model, route, list, from, serviceTier, promptOf(prices.tier), ...classes, others.join(", ")];
  });
  return `${table(HEADINGS, cells)}\n${LEGEND}`;
}

function promptOf({ abovePromptTokens, promptTokensMax }: PriceTier = {}): string {
  const above = abovePromptTokens === undefined ? [] : [`above ${abovePromptTokens}`];
  const upTo = promptTokensMax === undefined ? [] : [`up to ${promptTokensMax}`];
  return [...above, ...upTo].join(", ") || "any";
}
