import type { MARGIN_GROUPS } from "../api/admin/margin-groups.ts";
import type { Latencies, Margins, Overview } from "../api/admin/reports.ts";
import { quantilesOf } from "../api/latency.ts";
import { DAY_MS, dayStart, HOUR_MS, isoDay, isoMonth, isoTime, monthStart } from "../api/time.ts";
import { creditsFromMicro, creditsOf, dollarsFromMicro, dollarText, type MicroCredits } from "../credits/amount.ts";
import { sumOf, type UsageCounts } from "../credits/usage-counts.ts";
import { ApiError } from "../errors.ts";
import type { RefusalDayRow } from "../stores/queries/refusals.ts";
import type { UsageDayRow } from "../stores/queries/usage.ts";
import type { Store } from "../stores/store.ts";
import { ALL_ORGANIZATIONS, DAYS_DEFAULT, daysBetween, type UsageDays } from "./usage-days.ts";

export interface OverviewsOptions {
  rows: Pick<Store["usage"], "credits" | "names" | "solvency" | "available">;
  refusals: Pick<Store["refusals"], "days" | "organizations">;
  days: Pick<UsageDays, "usage" | "latencies">;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Credits per dollar, as the configuration states them. */
  perDollar: () => string;
}

interface Period {
  /** Null for all organizations. */
  organizationId: string | null;
  /** Starts of the first and the last day, in milliseconds since 1970; both inclusive. Null: the 30 days until today. */
  fromDay: number | null;
  toDay: number | null;
}

export interface OverviewRequest extends Period {
  /** Providers' costs are for operators only. */
  forOperator: boolean;
  /** The tokens that may be among those that spend most; absent or null: all. */
  tokens?: ReadonlySet<string> | null;
}

const DAYS_MAX = 366;
const PACE_DAYS = 7;
const TOP = 10;
const ENDING_WITHIN_DAYS = 7;
const REFUSED_MAX = 50;
/** Organizations with the most charges for which that is estimated. */
const ESTIMATED_MAX = 500;

/** Summarizes credits and usage of an organization or of all. */
export class Overviews {
  readonly #options: OverviewsOptions;

  constructor(options: OverviewsOptions) {
    this.#options = options;
  }

  /** Reports the usage of some days. Throws ApiError (invalid_value) for a range that is empty or too long. */
  async overview({ organizationId, forOperator, tokens, ...range }: OverviewRequest): Promise<Overview> {
    const { days, refusals, clock } = this.#options;
    const nowMs = clock();
    const { fromDay, toDay } = daysOf(range, nowMs);
    const owner = organizationId ?? ALL_ORGANIZATIONS;
    const [{ rows, pendingDays }, refused] = await Promise.all([
      days.usage(owner, fromDay, toDay),
      refusals.days(owner, fromDay, toDay),
    ]);
    const seen = rows.filter(({ dimension, name }) => dimension !== "token" || tokens?.has(name) !== false);
    const models = rows.filter(({ dimension }) => dimension === "model");
    const firstTokens = rows.filter(({ dimension }) => dimension === "first_token");
    const toCounts = forOperator ? countsWithCost : countsForMember;
    return {
      object: "overview",
      organization_id: organizationId,
      from: isoDay(fromDay),
      to: isoDay(toDay),
      generated_at: isoTime(nowMs),
      pending_days: pendingDays,
      ...(await this.#funds(organizationId, nowMs, { fromDay, toDay })),
      totals: { ...toCounts(sumOf(models)), refused: refusedIn(refused), first_token_ms: firstTokenOf(firstTokens) },
      days: daysBetween(fromDay, toDay).map((day) => ({
        ...dayOfOverview(day, models, firstTokens, toCounts),
        refused: refusedIn(refused.filter((row) => row.day === day)),
      })),
      refusals: refusalsByCode(refused),
      top_models: topOf(models).map(([model, counts]) => ({ model, ...toCounts(counts) })),
      ...(await this.#tops(seen, toCounts)),
    };
  }

  /** Compares what was charged with the costs that providers reported, by month. Throws like `overview`. */
  async margins({ organizationId, by, ...range }: Period & { by: (typeof MARGIN_GROUPS)[number] }): Promise<Margins> {
    const { days, clock, perDollar } = this.#options;
    const { fromDay, toDay } = daysOf(range, clock());
    const owner = by === "organization" ? ALL_ORGANIZATIONS : (organizationId ?? ALL_ORGANIZATIONS);
    const data: Margins["data"] = [];
    let pending = 0;
    for (let month = monthStart(toDay); month > monthStart(fromDay, -1); month = monthStart(month, -1)) {
      const lastDay = Math.min(toDay, monthStart(month, 1) - DAY_MS);
      const { rows, pendingDays } = await days.usage(owner, Math.max(fromDay, month), lastDay);
      pending += pendingDays;
      const isWanted = ({ dimension, name }: UsageDayRow) =>
        dimension === by && (by !== "organization" || name === (organizationId ?? name));
      for (const [name, { requests, charged, chargedWithCost, providerCost }] of rankedOf(rows.filter(isWanted))) {
        const margin = dollarText(dollarsFromMicro(chargedWithCost, perDollar()) - providerCost);
        const credits = { charged: creditsFromMicro(charged), charged_with_cost: creditsFromMicro(chargedWithCost) };
        const cost = { provider_cost: dollarText(providerCost), margin };
        data.push({ month: isoMonth(month), name, requests, ...credits, ...cost });
      }
    }
    return { object: "margins", from: isoDay(fromDay), to: isoDay(toDay), pending_days: pending, data };
  }

  /** Reports the latencies of a model, of all organizations, by route and by day. Throws like `overview`. */
  async latencies({ model, ...range }: Omit<Period, "organizationId"> & { model: string }): Promise<Latencies> {
    const { fromDay, toDay } = daysOf(range, this.#options.clock());
    const { rows, pendingDays } = await this.#options.days.latencies(model, fromDay, toDay);
    const routes = [null, ...new Set(rows.map(({ route }) => route).sort())];
    const ofDay = Map.groupBy(rows, ({ day }) => day);
    const data = routes.map((route) => ({
      route,
      days: daysBetween(fromDay, toDay).map((day) => {
        const own = (ofDay.get(day) ?? []).filter((row) => row.route === (route ?? row.route));
        const firstToken = quantilesOf(own.map(({ firstTokens }) => firstTokens));
        const duration = quantilesOf(own.map(({ durations }) => durations));
        return { day: isoDay(day), first_token_ms: firstToken, duration_ms: duration };
      }),
    }));
    return { object: "latencies", from: isoDay(fromDay), to: isoDay(toDay), pending_days: pendingDays, data };
  }

  /** Reports credits and the rate of the last days; for all organizations together, also which of them run out. */
  async #funds(organizationId: string | null, nowMs: number, period: { fromDay: number; toDay: number }) {
    const { rows, days } = this.#options;
    const today = dayStart(nowMs);
    const fromDay = today - (PACE_DAYS - 1) * DAY_MS;
    const [credits, usage] = await Promise.all([
      rows.credits(organizationId),
      days.usage(organizationId ?? ALL_ORGANIZATIONS, fromDay, today),
    ]);
    const models = usage.rows.filter(({ dimension }) => dimension === "model");
    const elapsedDays = (createdAtMs: number) => Math.max(HOUR_MS, nowMs - Math.max(fromDay, createdAtMs)) / DAY_MS;
    const perDay = creditsFromMicro(sumOf(models).charged) / elapsedDays(credits.createdAtMs);
    const shown = { ...creditsOf(credits), spent_per_day: perDay };
    if (organizationId !== null) {
      return { credits: { ...shown, days_left: daysLeft(credits.available, perDay) }, organizations: null };
    }
    const spent = rankedOf(usage.rows.filter(({ dimension }) => dimension === "organization"));
    const [solvency, refused] = await Promise.all([
      this.#solvency(spent, elapsedDays),
      this.#options.refusals.organizations("insufficient_credits", period, REFUSED_MAX),
    ]);
    // Credits of one organization pay for no other.
    return { credits: { ...shown, days_left: null }, organizations: { ...solvency, refused } };
  }

  async #solvency(spent: [id: string, UsageCounts][], elapsedDays: (createdAtMs: number) => number) {
    const { rows } = this.#options;
    const chargedTo = new Map(spent.slice(0, ESTIMATED_MAX).map(([id, { charged }]) => [id, charged]));
    const [{ active, outOfCredits }, found] = await Promise.all([
      rows.solvency(),
      rows.available([...chargedTo.keys()]),
    ]);
    const ending = found.flatMap(({ id, name, created, available }) => {
      const perDay = creditsFromMicro(chargedTo.get(id) ?? 0n) / elapsedDays(Number(created));
      const left = daysLeft(available, perDay);
      const row = { organization_id: id, name, available: creditsFromMicro(available), days_left: left ?? 0 };
      return left === null || left >= ENDING_WITHIN_DAYS ? [] : [row];
    });
    ending.sort((one, other) => one.days_left - other.days_left);
    return { active, out_of_credits: outOfCredits, ending: ending.slice(0, TOP) };
  }

  async #tops(rows: readonly UsageDayRow[], toCounts: ToCounts) {
    const of = (dimension: UsageDayRow["dimension"]) => topOf(rows.filter((row) => row.dimension === dimension));
    const [tokens, organizations] = [of("token"), of("organization")];
    const ids = { tokens: tokens.map(([id]) => id), organizations: organizations.map(([id]) => id) };
    const names = await this.#options.rows.names(ids);
    const tokenOf = new Map(names.tokens.map((token) => [token.id, token]));
    const nameOf = new Map(names.organizations.map(({ id, name }) => [id, name]));
    return {
      top_tokens: tokens.map(([id, counts]) => {
        const { name = null, organizationId = null } = tokenOf.get(id) ?? {};
        return { token_id: id, name, organization_id: organizationId, ...toCounts(counts) };
      }),
      top_organizations: organizations.map(([id, counts]) => {
        return { organization_id: id, name: nameOf.get(id) ?? null, ...toCounts(counts) };
      }),
    };
  }
}

/** Returns the first and the last day of a range. Throws ApiError (invalid_value) for one that is empty or too long. */
function daysOf(range: Pick<Period, "fromDay" | "toDay">, nowMs: number) {
  const toDay = range.toDay ?? dayStart(nowMs);
  const fromDay = range.fromDay ?? toDay - (DAYS_DEFAULT - 1) * DAY_MS;
  if (fromDay <= toDay && toDay - fromDay < DAYS_MAX * DAY_MS) return { fromDay, toDay };
  const message = `Invalid 'from': expected a day at or before 'to', and at most ${DAYS_MAX} days in total.`;
  throw new ApiError("invalid_value", message, { param: "from" });
}

/** Returns the days until credits are spent at a rate; null without one. */
function daysLeft(available: MicroCredits, perDay: number): number | null {
  return perDay === 0 ? null : creditsFromMicro(available) / perDay;
}

function refusedIn(rows: readonly RefusalDayRow[]): number {
  return rows.reduce((sum, { requests }) => sum + requests, 0);
}

function refusalsByCode(rows: readonly RefusalDayRow[]): Overview["refusals"] {
  const sums = [...Map.groupBy(rows, ({ code }) => code)].map(([code, of]) => ({ code, requests: refusedIn(of) }));
  return sums.sort((one, other) => other.requests - one.requests);
}

function dayOfOverview(
  day: number,
  models: readonly UsageDayRow[],
  firstTokens: readonly UsageDayRow[],
  toCounts: ToCounts,
): Omit<Overview["days"][number], "refused"> {
  const own = models.filter((row) => row.day === day);
  return {
    day: isoDay(day),
    ...toCounts(sumOf(own)),
    first_token_ms: firstTokenOf(firstTokens.filter((row) => row.day === day)),
    models: rankedOf(own).map(([model, counts]) => ({ model, ...toCounts(counts) })),
  };
}

/** Sums up rows by name, sorted by charges and then by requests. */
function rankedOf(rows: readonly UsageDayRow[]): [string, UsageCounts][] {
  const sums = [...Map.groupBy(rows, ({ name }) => name)].map(([name, of]): [string, UsageCounts] => [name, sumOf(of)]);
  return sums.sort(([, a], [, b]) => Number(b.charged - a.charged) || b.requests - a.requests);
}

function topOf(rows: readonly UsageDayRow[]): [string, UsageCounts][] {
  return rankedOf(rows).slice(0, TOP);
}

function firstTokenOf(rows: readonly UsageDayRow[]): Overview["totals"]["first_token_ms"] {
  return quantilesOf(rows.map(({ name, requests }) => ({ [Number(name)]: requests })));
}

type ToCounts = typeof countsForMember | typeof countsWithCost;

function countsForMember({ requests, errors, charged, inputTokens, outputTokens }: UsageCounts) {
  const spent = creditsFromMicro(charged);
  return { requests, errors, spent, input_tokens: inputTokens, output_tokens: outputTokens, provider_cost: null };
}

function countsWithCost(counts: UsageCounts) {
  const cost = { amount: dollarText(counts.providerCost), spent: creditsFromMicro(counts.chargedWithCost) };
  return { ...countsForMember(counts), provider_cost: cost };
}
