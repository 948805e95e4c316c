import { FIRST_TOKEN_BOUNDS_MS } from "../../api/first-token.ts";
import { PROVIDER_COST_DIGITS, parseDecimal } from "../../credits/amount.ts";
import type { AdjustmentRow, RequestRow } from "../../credits/books.ts";
import { timeOfId } from "../../credits/request-id.ts";
import { addCounts, NO_USAGE, type UsageCounts } from "../../credits/usage-counts.ts";
import type { Database } from "../database.ts";
import { USAGE_DAY, USAGE_DAY_DONE } from "../schema.ts";
import { join, sql } from "../sql.ts";
import type { UsageDayRow } from "./usage.ts";
import { type ReportViolation, soundRows } from "./verify-report.ts";

const DAY_MS = 86_400_000;
/** A day is summed up an hour after its end at the earliest. What is booked later than this before that may be missing. */
const SUMMED_WITHIN_MS = 600_000;

/** Sums of one organization over the requests of a day, as `UsageDays` stores them. */
interface Day {
  sums: Map<string, UsageCounts>;
  /** When a request of the day was last booked. */
  bookedMs: number;
}

/**
 * Compares the stored sums of days with the requests, which come in the order of their ids. Only the days since the last
 * comparison are in memory. A day is not compared if a request of it was booked after it was summed up.
 */
export class DaySums {
  readonly #organizationId: string;
  /** Requests of days before may have been removed. */
  fromMs = 0;
  readonly #days = new Map<number, Day>();
  readonly #compared = new Set<number>();

  constructor(organizationId: string) {
    this.#organizationId = organizationId;
  }

  add(request: RequestRow, late: readonly AdjustmentRow[]): void {
    const timeMs = timeOfId(request.holdId);
    if (timeMs === undefined) return;
    const at = timeMs - (timeMs % DAY_MS);
    if (at < this.fromMs) return;
    const day = this.#days.get(at) ?? { sums: new Map<string, UsageCounts>(), bookedMs: 0 };
    this.#days.set(at, day);
    day.bookedMs = Math.max(day.bookedMs, request.endedAtMs, ...late.map(({ madeAtMs }) => madeAtMs));
    const charged = late.reduce((sum, { amount }) => sum + amount, request.cost);
    const all = [request, ...late.flatMap(({ settlement }) => settlement ?? [])];
    const inputTokens = all.reduce((sum, row) => sum + row.inputTokens, 0);
    const outputTokens = all.reduce((sum, row) => sum + row.outputTokens, 0);
    const errors = request.trace?.failure == null ? 0 : 1;
    const cost = request.trace?.providerCost ?? null;
    const providerCost = cost === null ? 0n : (parseDecimal(cost, PROVIDER_COST_DIGITS) ?? 0n);
    const chargedWithCost = cost === null ? 0n : request.cost;
    const counts = { requests: 1, errors, charged, inputTokens, outputTokens, providerCost, chargedWithCost };
    for (const key of keysOf(request)) addTo(day.sums, key, counts);
  }

  /** Compares the days to which no later request belongs: those before the newest one, and all days at the end. */
  async compare(database: Database, isEnd: boolean, report: ReportViolation): Promise<void> {
    const days = [...this.#days.keys()].slice(0, isEnd ? undefined : -1);
    if (days.length === 0) return;
    const [doneRecords = [], records = []] = await database.snapshot([
      sql`select * from usage_day_done where day in (${join(days)})`,
      sql`select * from usage_day where organization_id = ${this.#organizationId}
        and dimension in ('model', 'token', 'first_token') and day in (${join(days)})`,
    ]);
    const done = new Map(soundRows(USAGE_DAY_DONE, doneRecords).map(({ day, doneAtMs }) => [day, doneAtMs]));
    const stored = Map.groupBy(soundRows(USAGE_DAY, records), ({ day }) => day);
    for (const at of days) {
      const day = this.#days.get(at);
      const doneAtMs = done.get(at);
      this.#days.delete(at);
      this.#compared.add(at);
      if (day === undefined || doneAtMs === undefined || day.bookedMs > doneAtMs - SUMMED_WITHIN_MS) continue;
      compareDay(at, day.sums, stored.get(at) ?? [], report);
    }
  }

  /** Reports sums of days without a request. */
  checkOthers(days: readonly number[], report: ReportViolation): void {
    for (const day of days) {
      if (!this.#compared.has(day)) report(14, `The sums of ${dateOf(day)} are those of no request.`);
    }
  }
}

const COUNTS = Object.keys(NO_USAGE) as (keyof UsageCounts)[];

function compareDay(day: number, sums: Day["sums"], stored: readonly UsageDayRow[], report: ReportViolation): void {
  const left = new Map(sums);
  for (const row of stored) {
    const key = `${row.dimension} ${row.name}`;
    const sum = left.get(key);
    left.delete(key);
    const isSame = sum !== undefined && COUNTS.every((name) => row[name] === sum[name]);
    if (!isSame) report(14, `The sums of ${dateOf(day)} by ${key} are not those of its requests.`);
  }
  for (const key of left.keys()) report(14, `The sums of ${dateOf(day)} by ${key} are missing.`);
}

function keysOf({ model, tokenId, trace }: RequestRow): string[] {
  const keys = [`model ${model}`, `token ${tokenId}`];
  const firstTokenMs = trace?.firstTokenMs ?? null;
  if (firstTokenMs === null) return keys;
  const bucket = FIRST_TOKEN_BOUNDS_MS.findIndex((bound) => firstTokenMs < bound);
  return [...keys, `first_token ${bucket < 0 ? FIRST_TOKEN_BOUNDS_MS.length : bucket}`];
}

function addTo(sums: Day["sums"], key: string, counts: UsageCounts): void {
  const sum = sums.get(key);
  if (sum === undefined) sums.set(key, { ...counts });
  else addCounts(sum, counts);
}

function dateOf(day: number): string {
  return Number.isSafeInteger(day) && Math.abs(day) < 8e15 ? new Date(day).toISOString().slice(0, 10) : String(day);
}
