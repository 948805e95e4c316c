import { isDeepStrictEqual } from "node:util";
import { DAY_MS, dayStart, isoDay } from "../api/time.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Log } from "../telemetry/logger.ts";
import type { FixedCatalog } from "./build.ts";
import type { FoundServer } from "./local-servers.ts";
import { type Catalog, type CatalogModel, toApiModel, withRoutes } from "./model.ts";

export interface LiveCatalogOptions {
  /** Builds the catalog at a time, in milliseconds since 1970, with the local servers that were found. Throws OperatorError. */
  build(found: readonly FoundServer[], nowMs: number): FixedCatalog;
  /** Searches for local servers; absent: there is no search. */
  look?: () => Promise<readonly FoundServer[]>;
  clock: () => number;
  log: Log;
  /** Local servers that are known from before, until the next search. */
  known?: readonly FoundServer[];
  everyMs?: number;
  /** Time for which a server that does not answer stays listed: it may be busy loading a model. */
  keepMs?: number;
}

const EVERY_MS = 30_000;
const KEEP_MS = 90_000;

/** The current catalog, which changes with local servers, dated prices and shutdowns. It searches in the background. */
export class LiveCatalog implements Catalog {
  readonly #options: LiveCatalogOptions;
  readonly #seen = new Map<string, { server: FoundServer; atMs: number }>();
  #catalog: FixedCatalog;
  #builtFrom: string;
  /** Midnight, when prices and shutdowns may change. */
  #goodUntilMs: number;
  #timer: NodeJS.Timeout | undefined;
  /** Searches now. Never rejects: a failure is logged, and the catalog stays unchanged. */
  readonly refresh = sharedRun(() => this.#refresh());

  /** Builds the catalog before the first search. Throws OperatorError. */
  constructor(options: LiveCatalogOptions) {
    this.#options = options;
    const nowMs = options.clock();
    if (options.look !== undefined) this.#keep(options.known ?? [], nowMs);
    this.#catalog = options.build(this.found, nowMs);
    this.#builtFrom = fingerprint(this.found, nowMs);
    this.#goodUntilMs = dayStart(nowMs) + DAY_MS;
  }

  get notes(): readonly string[] {
    return this.#catalog.notes;
  }

  get found(): readonly FoundServer[] {
    return [...this.#seen.values()].map(({ server }) => server);
  }

  find(id: string): CatalogModel | undefined {
    return this.#current().find(id);
  }

  list(): readonly CatalogModel[] {
    return this.#current().list();
  }

  /** Returns the next change of the prices of each model, and in each price list, until a time. A date that changes nothing is none. */
  priceChanges(untilMs: number) {
    const lists = [[null, this.#current()] as const, ...this.byPriceList];
    const priced = lists.flatMap(([price_list, catalog]) => catalog.list().map((model) => ({ price_list, model })));
    return priced.flatMap(({ price_list, model }) => {
      const atMs = Math.min(...model.routes.map(({ next }) => next?.fromMs ?? Number.POSITIVE_INFINITY));
      if (atMs > untilMs) return [];
      const [prices, new_prices] = [model, afterChange(model, atMs)].map((at) => toApiModel(at).pricing_details);
      const isSame = isDeepStrictEqual(prices, new_prices);
      return isSame ? [] : [{ model: model.id, price_list, date: isoDay(atMs), prices, new_prices }];
    });
  }

  get aliases(): ReadonlyMap<string, CatalogModel> {
    return this.#current().aliases;
  }

  get byPriceList(): ReadonlyMap<string, Catalog> {
    return this.#current().byPriceList;
  }

  /** Returns the catalog, rebuilt after midnight, so that a dated price takes effect at once and not at the next search. */
  #current(): FixedCatalog {
    const nowMs = this.#options.clock();
    if (nowMs >= this.#goodUntilMs) this.#build(nowMs);
    return this.#catalog;
  }

  async start(): Promise<void> {
    await this.refresh();
    this.#timer = setInterval(() => void this.refresh(), this.#options.everyMs ?? EVERY_MS).unref();
  }

  /** Stops searching. Resolves when a running search has ended. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.refresh.ended();
  }

  async #refresh(): Promise<void> {
    const { look, clock, log } = this.#options;
    try {
      const answered = (await look?.()) ?? [];
      const nowMs = clock();
      this.#keep(answered, nowMs);
      this.#build(nowMs);
    } catch (error) {
      log.warn({ err: error }, NOT_RENEWED);
    }
  }

  #build(nowMs: number): void {
    const { build, log } = this.#options;
    this.#goodUntilMs = dayStart(nowMs) + DAY_MS;
    const from = fingerprint(this.found, nowMs);
    if (from === this.#builtFrom) return;
    try {
      this.#catalog = build(this.found, nowMs);
      this.#builtFrom = from;
      log.debug({ models: this.#catalog.list().length }, "the catalog has changed");
    } catch (error) {
      log.warn({ err: error }, NOT_RENEWED);
    }
  }

  #keep(answered: readonly FoundServer[], nowMs: number): void {
    for (const server of answered) this.#seen.set(server.id, { server, atMs: nowMs });
    for (const [id, { atMs }] of this.#seen) {
      if (nowMs - atMs >= (this.#options.keepMs ?? KEEP_MS)) this.#seen.delete(id);
    }
  }
}

const NOT_RENEWED = "the catalog could not be renewed and stays as it was";

function afterChange(model: CatalogModel, atMs: number): CatalogModel {
  return withRoutes(
    model,
    model.routes.map((route) => (route.next?.fromMs === atMs ? route.next : route)),
  );
}

/** Returns a text that changes when the catalog may change: with the date, and with the servers that were found. */
function fingerprint(found: readonly FoundServer[], nowMs: number): string {
  return `${isoDay(nowMs)} ${JSON.stringify(found)}`;
}
