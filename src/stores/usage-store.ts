import type { MicroCredits } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";

/** What requests came to, as far as it is only looked at: the books do not rest on it. Times are milliseconds since 1970. */
export interface UsageRows {
  /**
   * Sums over the requests that began in a stretch of time, by organization, token, model and bucket. A combination may
   * come several times.
   */
  requests(fromMs: number, toMs: number): Promise<RequestSum[]>;
  /** When the first request began. */
  firstRequestMs(): Promise<number | null>;
  /** The days that are summed up, of those that begin in a stretch of time. */
  doneDays(fromMs: number, toMs: number): Promise<number[]>;
  /** Writes what a day came to; written twice, the later stands. */
  finishDay(day: number, rows: readonly UsageDayRow[], nowMs: number): Promise<void>;
  /** What days came to, one by one. */
  byDay(dimension: "model" | "first_token", range: UsageRange): Promise<UsageDayRow[]>;
  /** What days came to together; `day` is the first of them. */
  together(dimension: "token" | "organization", range: UsageRange): Promise<UsageDayRow[]>;
  /** All credits of an organization, or (null) of all. */
  credits(organizationId: string | null): Promise<Omit<BalanceRow, "organizationId" | "nextChangeAtMs">>;
  /** Names of tokens with their organizations, and of organizations, by id. */
  names(ids: { tokens: readonly string[]; organizations: readonly string[] }): Promise<{
    tokens: { id: string; name: string; organizationId: string }[];
    organizations: { id: string; name: string }[];
  }>;
}

export interface UsageCounts {
  requests: number;
  errors: number;
  charged: MicroCredits;
  inputTokens: number;
  outputTokens: number;
}

export interface RequestSum extends UsageCounts {
  organizationId: string;
  tokenId: string;
  model: string;
  /** Where the time to the first piece of the answer lies, as `FIRST_TOKEN_BOUNDS_MS` has it; null where there was none. */
  bucket: number | null;
  /** How many of them are still running. */
  open: number;
}

export interface UsageRange {
  organizationId: string;
  /** Their first milliseconds; days that are summed up. */
  days: readonly number[];
}

export interface UsageDayRow extends UsageCounts {
  organizationId: string;
  dimension: "model" | "token" | "organization" | "first_token";
  /** Its first millisecond, in UTC. */
  day: number;
  /** The model, the token, the organization, or the bucket. */
  name: string;
}
