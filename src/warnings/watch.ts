import { idOfTexts } from "../admin/token.ts";
import type { EventKind } from "../api/admin/event-kinds.ts";
import type { ModelRoute } from "../api/admin/reports.ts";
import { DAY_MS, dayStart, HOUR_MS, isoDay, isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { creditsLeft, type EventRow, eventOf } from "../credits/warnings.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Store } from "../stores/store.ts";

const EVERY_MS = 60_000;
const PAST_DAYS = 7;
/** Days after which it is known what is usual. */
const USUAL_AFTER_DAYS = 3;
/** An hour is over when its last requests have been booked. */
const HOUR_ENDS_AFTER_MS = 5 * 60_000;
const MODEL_DAYS = 30;

export interface WatchSettings {
  forecastDays: number;
  tokenExpiryDays: number;
  unusualFactor: number;
}

type Health = Pick<NonNullable<ModelRoute["health"]>, "state" | "last_failure" | "last_success_at">;

export interface WatchOptions {
  rows: Store["events"];
  usage: Pick<Store["usage"], "requests">;
  settings: () => WatchSettings;
  /** The routes that this node has called since its start. */
  routes: () => readonly { route: string; health: Health }[];
  models: () => readonly { id: string; shutdownDate: string | null; replacement: string | null }[];
  /** Returns the next change of the prices of each model, and in each price list, until a time. */
  priceChanges: (untilMs: number) => readonly (ModelChange["data"] & { price_list: string | null })[];
  deadLetters: () => Promise<number>;
  /** Name of this node, which has dead letters of its own. */
  node: string;
  /** Milliseconds since 1970. */
  clock: () => number;
  outage: { failed(fields: object): void; succeeded(): void };
}

/** Writes the events that no transaction causes. Every node runs it: their keys let each be written once. */
export class Watch {
  readonly #options: WatchOptions;
  #timer: NodeJS.Timeout | undefined;
  /** Looks at everything that is due. Never rejects. */
  readonly run = sharedRun(() => this.#run());
  /** The parts, each with the hour of its last success: one that fails runs again in a minute, and not the others. */
  readonly #parts: { isHourly: boolean; hour: number; look(untilMs: number): Promise<void> }[] = [
    { isHourly: false, hour: 0, look: () => this.#watchRoutes() },
    { isHourly: false, hour: 0, look: () => this.#watchDeadLetters() },
    { isHourly: true, hour: 0, look: (untilMs) => this.#watchSpending(untilMs) },
    { isHourly: true, hour: 0, look: () => this.#watchTokens() },
    { isHourly: true, hour: 0, look: () => this.#watchModels() },
  ];
  /** True for the routes that were last seen down on this node. */
  readonly #isDown = new Map<string, boolean>();

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.run(), EVERY_MS).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.run.ended();
  }

  async #run(): Promise<void> {
    const { clock, outage } = this.#options;
    const hour = Math.floor((clock() - HOUR_ENDS_AFTER_MS) / HOUR_MS);
    let hasFailed = false;
    for (const part of this.#parts) {
      if (part.isHourly && part.hour === hour) continue;
      try {
        await part.look(hour * HOUR_MS);
        part.hour = hour;
      } catch (err) {
        hasFailed = true;
        outage.failed({ err });
      }
    }
    if (!hasFailed) outage.succeeded();
  }

  #event(kind: EventKind, organizationId: string | null, period: readonly unknown[], data: Record<string, unknown>) {
    return eventOf(kind, { organizationId, nowMs: this.#options.clock(), period }, data);
  }

  /**
   * Compares with the last event of a route, which another node, or this one before a restart, may have written. The key
   * contains that event: of several nodes that notice a change, one writes it.
   */
  async #watchRoutes(): Promise<void> {
    const { rows, routes } = this.#options;
    const seen = routes().map(({ route, health }) => ({ route, isDown: isDown(health) }));
    const changed = seen.filter(({ route, isDown }) => isDown !== undefined && isDown !== this.#isDown.get(route));
    if (changed.length === 0) return;
    const earlier = await rows.eventsOf(["route.down", "route.up"]);
    const events = changed.flatMap(({ route, isDown }) => {
      const kind = isDown ? "route.down" : "route.up";
      const last = earlier.find(({ data }) => data.route === route);
      if ((last?.kind ?? "route.up") === kind) return [];
      return [this.#event(kind, null, [route, last?.madeAtMs ?? 0], { route })];
    });
    await rows.insertEvents(events);
    for (const { route, isDown = false } of changed) this.#isDown.set(route, isDown);
  }

  async #watchDeadLetters(): Promise<void> {
    const { rows, deadLetters, node, clock } = this.#options;
    const entries = await deadLetters();
    if (entries === 0) return;
    const period = [node, entries, Math.floor(clock() / DAY_MS)];
    await rows.insertEvents([this.#event("ledger.dead_letter", null, period, { node, entries })]);
  }

  async #watchSpending(untilMs: number): Promise<void> {
    const { rows, usage, settings, clock } = this.#options;
    const { forecastDays, unusualFactor } = settings();
    const today = dayStart(clock());
    const past = await rows.pastSpending(today - PAST_DAYS * DAY_MS, today);
    const sums = past.length === 0 ? [] : await usage.requests(untilMs - HOUR_MS, untilMs);
    const spentIn = Map.groupBy(sums, ({ organizationId }) => organizationId);
    const events = past.flatMap((one) => {
      const { organizationId, granted } = one;
      const days = (today - one.firstDay) / DAY_MS;
      const found: EventRow[] = [];
      const left = (creditsFromMicro(creditsLeft(one)) / creditsFromMicro(one.charged)) * days;
      if (left <= forecastDays && creditsLeft(one) > 0n) {
        const shown = { days_left: Math.floor(left * 10) / 10, credits_left: creditsFromMicro(creditsLeft(one)) };
        // A top-up arms it again.
        found.push(this.#event("credits.forecast", organizationId, [String(granted)], shown));
      }
      const spent = creditsFromMicro((spentIn.get(organizationId) ?? []).reduce((sum, row) => sum + row.charged, 0n));
      const usual = creditsFromMicro(one.charged) / days / 24;
      if (days >= USUAL_AFTER_DAYS && spent > usual * unusualFactor) {
        const hour = isoTime(untilMs - HOUR_MS);
        const shown = { hour, spent, usual: Number(usual.toFixed(6)), factor: unusualFactor };
        found.push(this.#event("usage.unusual", organizationId, [hour], shown));
      }
      return found;
    });
    await rows.insertEvents(events);
  }

  async #watchTokens(): Promise<void> {
    const { rows, settings, clock } = this.#options;
    const tokens = await rows.expiringTokens(clock(), clock() + settings().tokenExpiryDays * DAY_MS);
    const events = tokens.map(({ organizationId, id, name, expiresAtMs }) => {
      const data = { token_id: id, name, expires_at: isoTime(expiresAtMs) };
      return this.#event("token.expiring", organizationId, [id, expiresAtMs], data);
    });
    await rows.insertEvents(events);
  }

  /** Tells the service of what changes in the next days, and the organizations that used the model lately and have its prices. */
  async #watchModels(): Promise<void> {
    const { rows, priceChanges, clock } = this.#options;
    const priced = priceChanges(clock() + MODEL_DAYS * DAY_MS).map((data): ModelChange => {
      // Corrected prices are another change. They can be longer than a key may be.
      const prices = idOfTexts("prices", JSON.stringify(data.new_prices));
      const period = [data.model, data.date, prices, ...(data.price_list === null ? [] : [data.price_list])];
      return { kind: "price.change", priceList: data.price_list, period, data };
    });
    const changes = [...this.#shutdowns(), ...priced];
    const models = [...new Set(changes.map(({ data }) => data.model))];
    const users = changes.length === 0 ? [] : await rows.modelUsers(models, dayStart(clock()) - PAST_DAYS * DAY_MS);
    const events = changes.flatMap(({ kind, priceList, period, data }) => {
      const hasPrices = (user: (typeof users)[number]) => priceList === undefined || user.priceList === priceList;
      const own = users.filter((user) => user.model === data.model && hasPrices(user));
      return [null, ...own.map((user) => user.organizationId)].map((id) => this.#event(kind, id, period, data));
    });
    await rows.insertEvents(events);
  }

  #shutdowns(): ModelChange[] {
    const { models, clock } = this.#options;
    const [from, to] = [isoDay(clock()), isoDay(clock() + MODEL_DAYS * DAY_MS)];
    return models().flatMap(({ id: model, shutdownDate: date, replacement }) => {
      if (date === null || date < from || date > to) return [];
      return [{ kind: "model.shutdown", period: [model, date], data: { model, date, replacement } }];
    });
  }
}

/** A change of a model that is known in advance. */
interface ModelChange {
  kind: EventKind;
  /** The list whose prices change; null: those of the model. */
  priceList?: string | null;
  period: readonly unknown[];
  data: { model: string; date: string } & Record<string, unknown>;
}

/** Returns undefined where it is not known: a route that nobody calls, or whose last call failed, is not up again. */
function isDown({ state, last_failure, last_success_at }: Health): boolean | undefined {
  if (state === "open") return true;
  return (last_success_at ?? "") > (last_failure?.at ?? "") ? false : undefined;
}
