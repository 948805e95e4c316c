import { InvalidValueError } from "../../admin/accounts.ts";
import type { Page } from "../../admin/directory.ts";
import type { Limits } from "../../api/admin/common.ts";
import type { LimitSettings } from "../../api/principal.ts";
import { parseTime } from "../../api/time.ts";
import { microCreditsOf } from "../../credits/amount.ts";
import { ApiError } from "../../errors.ts";

/** Converts a page of a list to its answer. */
export function listOf<Entry>({ data, nextCursor }: Page<Entry>) {
  return { object: "list" as const, data, next_cursor: nextCursor };
}

/** Returns the page that a query asks for. */
export function pageOf({ cursor, limit }: { cursor?: string | undefined; limit?: number | undefined }) {
  return { cursor: cursor ?? null, limit: limit ?? 50 };
}

/** Converts the limits of a body to settings. */
export function limitSettingsOf(limits: Limits | null | undefined): Partial<LimitSettings> | null {
  if (limits === null || limits === undefined) return null;
  const { requests_per_minute, tokens_per_minute, concurrent_requests } = limits;
  return {
    ...(requests_per_minute !== undefined && { requestsPerMinute: requests_per_minute }),
    ...(tokens_per_minute !== undefined && { tokensPerMinute: tokens_per_minute }),
    ...(concurrent_requests !== undefined && { concurrentRequests: concurrent_requests }),
  };
}

/** Converts an amount of a body to micro-credits; null where there is none. Throws invalid_value for more than 6 decimals. */
export function amountOf(param: string, credits: number): bigint;
export function amountOf(param: string, credits: number | null | undefined): bigint | null;
export function amountOf(param: string, credits: number | null | undefined): bigint | null {
  if (credits === null || credits === undefined) return null;
  const amount = microCreditsOf(credits);
  if (amount !== undefined) return amount;
  throw new ApiError("invalid_value", `Invalid '${param}': at most 6 decimals are allowed.`, { param });
}

/** Converts a time of a body to milliseconds since 1970; null where there is none. Throws invalid_value. */
export function timeOf(param: string, text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const timeMs = parseTime(text);
  if (timeMs === undefined)
    throw new ApiError("invalid_value", `Invalid '${param}': there is no such time.`, { param });
  return timeMs;
}

/** Awaits a use case. Throws invalid_value where it refuses a value or a cursor. */
export async function withApiErrors<T>(useCase: Promise<T>): Promise<T> {
  try {
    return await useCase;
  } catch (error) {
    if (!(error instanceof InvalidValueError)) throw error;
    throw new ApiError("invalid_value", error.message, { param: error.param });
  }
}
