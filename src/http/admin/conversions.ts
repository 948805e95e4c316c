import type { Page } from "../../admin/directory.ts";
import type { Limits } from "../../api/admin/common.ts";
import type { LimitSettings } from "../../api/principal.ts";
import { parseTime } from "../../api/time.ts";
import { microCreditsOf } from "../../credits/amount.ts";
import { ApiError, OperatorError } from "../../errors.ts";

/** A page of a list as the wire has it. */
export function listOf<Entry>({ data, nextCursor }: Page<Entry>) {
  return { object: "list" as const, data, next_cursor: nextCursor };
}

/** The page that a query asks for. */
export function pageOf({ cursor, limit }: { cursor?: string | undefined; limit?: number | undefined }) {
  return { cursor: cursor ?? null, limit: limit ?? 50 };
}

/** Limits as the rest of the service has them. */
export function limitSettingsOf(limits: Limits | null | undefined): Partial<LimitSettings> | null {
  if (limits === null || limits === undefined) return null;
  const { requests_per_minute, tokens_per_minute, concurrent_requests } = limits;
  return {
    ...(requests_per_minute !== undefined && { requestsPerMinute: requests_per_minute }),
    ...(tokens_per_minute !== undefined && { tokensPerMinute: tokens_per_minute }),
    ...(concurrent_requests !== undefined && { concurrentRequests: concurrent_requests }),
  };
}

/** An amount of a body in micro-credits, null where there is none. Throws invalid_value for one finer than the books take. */
export function amountOf(param: string, credits: number): bigint;
export function amountOf(param: string, credits: number | null | undefined): bigint | null;
export function amountOf(param: string, credits: number | null | undefined): bigint | null {
  if (credits === null || credits === undefined) return null;
  const amount = microCreditsOf(credits);
  if (amount !== undefined) return amount;
  throw new ApiError("invalid_value", `Invalid '${param}': at most 6 decimals are allowed.`, { param });
}

/** A time of a body in milliseconds since 1970, null where there is none. Throws invalid_value for one that is no time. */
export function timeOf(param: string, text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const timeMs = parseTime(text);
  if (timeMs === undefined)
    throw new ApiError("invalid_value", `Invalid '${param}': there is no such time.`, { param });
  return timeMs;
}

/** Runs a change; what an operator is told at the command line (`name: found …; allowed: …`) is told to the caller. */
export async function orRefuse<T>(change: Promise<T>): Promise<T> {
  try {
    return await change;
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    const param = /^([a-z]\w*): /i.exec(error.message)?.[1];
    throw new ApiError("invalid_value", error.message, { param });
  }
}
