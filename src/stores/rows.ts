import type { Selectable } from "kysely";
import type {
  AdjustmentRow,
  Attempt,
  BalanceRow,
  Draw,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  TokenBalanceRow,
  Trace,
  UsageEventRow,
} from "../credits/books.ts";
import type { TokenCounts, UnitPrices } from "../credits/price.ts";
import type {
  AdjustmentTable,
  BalanceTable,
  CreditGrantTable,
  HoldTable,
  IdempotencyKeyTable,
  TokenBalanceTable,
  UsageEventTable,
} from "./tables.ts";

/** Rows of the tables to rows of the books and back, the same for both stores. */
type Written<Table> = { [Column in keyof Table]: string | bigint | number | null };

export function encodeDraws(draws: Draw[]): string {
  if (draws.length === 0) return "[]";
  return JSON.stringify(draws.map((draw) => [draw.grantId, draw.amount.toString()]));
}

export function decodeDraws(text: string): Draw[] {
  if (text === "[]") return [];
  return (JSON.parse(text) as [string, string][]).map(([grantId, amount]) => ({ grantId, amount: BigInt(amount) }));
}

export function encodeMetadata(metadata: Record<string, string> | null): string | null {
  return metadata === null ? null : JSON.stringify(metadata);
}

export function decodeMetadata(text: string | null): Record<string, string> | null {
  return text === null ? null : (JSON.parse(text) as Record<string, string>);
}

export function optionalNumber(value: bigint | null): number | null {
  return value === null ? null : Number(value);
}

export function balanceFromTable(row: Selectable<BalanceTable>): BalanceRow {
  return {
    organizationId: row.organization_id,
    granted: row.granted,
    available: row.available,
    held: row.held,
    spent: row.spent,
    expired: row.expired,
    nextChangeAtMs: optionalNumber(row.next_change_at),
  };
}

export function balanceToTable(row: BalanceRow): Written<BalanceTable> {
  return {
    organization_id: row.organizationId,
    granted: row.granted,
    available: row.available,
    held: row.held,
    spent: row.spent,
    expired: row.expired,
    next_change_at: row.nextChangeAtMs,
  };
}

export function grantFromTable(row: Selectable<CreditGrantTable>): GrantRow {
  return {
    organizationId: row.organization_id,
    id: row.id,
    source: row.source,
    amount: row.amount,
    revoked: row.revoked,
    remaining: row.remaining,
    state: row.state,
    effectiveAtMs: Number(row.effective_at),
    expiresAtMs: optionalNumber(row.expires_at),
    priority: Number(row.priority),
    reference: row.reference,
    createdAtMs: Number(row.created_at),
  };
}

export function grantToTable(row: GrantRow): Written<CreditGrantTable> {
  return {
    organization_id: row.organizationId,
    id: row.id,
    source: row.source,
    amount: row.amount,
    revoked: row.revoked,
    remaining: row.remaining,
    state: row.state,
    effective_at: row.effectiveAtMs,
    expires_at: row.expiresAtMs,
    priority: row.priority,
    reference: row.reference,
    created_at: row.createdAtMs,
  };
}

export function holdFromTable(row: Selectable<HoldTable>): HoldRow {
  return {
    holdId: row.id,
    organizationId: row.organization_id,
    tokenId: row.token_id,
    requestId: row.request_id,
    model: row.model,
    upstream: row.upstream,
    prices: pricesFromTable(row),
    metadata: decodeMetadata(row.metadata),
    amount: row.amount,
    tokens: tokensFromTable(row),
    idempotencyKey: row.idempotency_key,
    madeAtMs: Number(row.made_at),
    expiresAtMs: Number(row.expires_at),
    draws: decodeDraws(row.draws),
    state: row.state,
    charged: row.charged,
    shortfall: row.shortfall,
    credited: row.credited,
    trace: traceFromTable(row),
  };
}

/** Written out, as is that of an event: an object put together from others is made several times as slowly, and these are made most. */
export function holdToTable(row: HoldRow): Written<HoldTable> {
  const { prices, tokens, trace } = row;
  return {
    organization_id: row.organizationId,
    id: row.holdId,
    token_id: row.tokenId,
    request_id: row.requestId,
    model: row.model,
    upstream: row.upstream,
    input_price: prices.input,
    cached_input_price: prices.cachedInput,
    cache_write_price: prices.cacheWrite,
    output_price: prices.output,
    reasoning_price: prices.reasoning,
    metadata: encodeMetadata(row.metadata),
    amount: row.amount,
    input_tokens: tokens.input,
    cached_input_tokens: tokens.cachedInput,
    cache_write_tokens: tokens.cacheWrite,
    output_tokens: tokens.output,
    reasoning_tokens: tokens.reasoning,
    idempotency_key: row.idempotencyKey,
    made_at: row.madeAtMs,
    expires_at: row.expiresAtMs,
    draws: encodeDraws(row.draws),
    state: row.state,
    charged: row.charged,
    shortfall: row.shortfall,
    credited: row.credited,
    is_streamed: trace === null ? null : Number(trace.isStreamed),
    // No settlement may fail for a fraction of a millisecond.
    first_token_ms: trace === null || trace.firstTokenMs === null ? null : Math.round(trace.firstTokenMs),
    attempts: trace === null || trace.attempts === null ? null : JSON.stringify(trace.attempts),
    failure: trace === null ? null : trace.failure,
  };
}

export function traceFromTable(
  row: Pick<Selectable<HoldTable>, "is_streamed" | "first_token_ms" | "attempts" | "failure">,
): Trace | null {
  if (row.is_streamed === null) return null;
  return {
    isStreamed: row.is_streamed === 1n,
    firstTokenMs: optionalNumber(row.first_token_ms),
    attempts: row.attempts === null ? null : (JSON.parse(row.attempts) as Attempt[]),
    failure: row.failure,
  };
}

export function tokenBalanceFromTable(row: Selectable<TokenBalanceTable>): TokenBalanceRow {
  const { organization_id: organizationId, token_id: tokenId, budget_id: budgetId, cap, held, spent } = row;
  return { organizationId, tokenId, budgetId, cap, held, spent };
}

export function tokenBalanceToTable(row: TokenBalanceRow): Written<TokenBalanceTable> {
  const { organizationId, tokenId, budgetId, cap, held, spent } = row;
  return { organization_id: organizationId, token_id: tokenId, budget_id: budgetId, cap, held, spent };
}

export function keyFromTable(row: Selectable<IdempotencyKeyTable>): IdempotencyKeyRow {
  return {
    organizationId: row.organization_id,
    key: row.key,
    fingerprint: row.fingerprint,
    holdId: row.hold_id,
    answer: row.answer,
    createdAtMs: Number(row.created_at),
    expiresAtMs: Number(row.expires_at),
  };
}

export function keyToTable(row: IdempotencyKeyRow): Written<IdempotencyKeyTable> {
  return {
    organization_id: row.organizationId,
    key: row.key,
    fingerprint: row.fingerprint,
    hold_id: row.holdId,
    answer: row.answer,
    created_at: row.createdAtMs,
    expires_at: row.expiresAtMs,
  };
}

export function adjustmentFromTable(row: Selectable<AdjustmentTable>): AdjustmentRow {
  const { organization_id: organizationId, id, kind, amount, reference, note } = row;
  return {
    organizationId,
    id,
    kind,
    amount,
    draws: decodeDraws(row.draws),
    isAll: row.is_all === 1n,
    grantId: row.grant_id,
    expiresAtMs: optionalNumber(row.expires_at),
    holdId: row.hold_id,
    tokenId: row.token_id,
    reference,
    note,
    madeAtMs: Number(row.made_at),
  };
}

export function adjustmentToTable(row: AdjustmentRow): Written<AdjustmentTable> {
  const { id, kind, amount, reference, note } = row;
  return {
    organization_id: row.organizationId,
    id,
    kind,
    amount,
    draws: encodeDraws(row.draws),
    is_all: row.isAll ? 1 : 0,
    grant_id: row.grantId,
    expires_at: row.expiresAtMs,
    hold_id: row.holdId,
    token_id: row.tokenId,
    reference,
    note,
    made_at: row.madeAtMs,
  };
}

export function eventFromTable(row: Selectable<UsageEventTable>): UsageEventRow {
  return {
    holdId: row.hold_id,
    sequence: row.sequence === 0n ? 0 : 1,
    organizationId: row.organization_id,
    tokenId: row.token_id,
    requestId: row.request_id,
    model: row.model,
    upstream: row.upstream,
    prices: pricesFromTable(row),
    metadata: decodeMetadata(row.metadata),
    tokens: tokensFromTable(row),
    cost: row.cost,
    shortfall: row.shortfall,
    basis: row.basis,
    end: row.ending,
    madeAtMs: Number(row.made_at),
    chargedAtMs: Number(row.charged_at),
  };
}

export function eventToTable(row: UsageEventRow): Written<UsageEventTable> {
  const { prices, tokens } = row;
  return {
    organization_id: row.organizationId,
    hold_id: row.holdId,
    sequence: row.sequence,
    token_id: row.tokenId,
    request_id: row.requestId,
    model: row.model,
    upstream: row.upstream,
    input_price: prices.input,
    cached_input_price: prices.cachedInput,
    cache_write_price: prices.cacheWrite,
    output_price: prices.output,
    reasoning_price: prices.reasoning,
    metadata: encodeMetadata(row.metadata),
    input_tokens: tokens.input,
    cached_input_tokens: tokens.cachedInput,
    cache_write_tokens: tokens.cacheWrite,
    output_tokens: tokens.output,
    reasoning_tokens: tokens.reasoning,
    cost: row.cost,
    shortfall: row.shortfall,
    basis: row.basis,
    ending: row.end,
    made_at: row.madeAtMs,
    charged_at: row.chargedAtMs,
  };
}

type UsageRow = Pick<Selectable<HoldTable>, keyof HoldTable & keyof UsageEventTable>;

function pricesFromTable(row: UsageRow): UnitPrices {
  return {
    input: row.input_price,
    cachedInput: row.cached_input_price,
    cacheWrite: row.cache_write_price,
    output: row.output_price,
    reasoning: row.reasoning_price,
  };
}

function tokensFromTable(row: UsageRow): TokenCounts {
  return {
    input: Number(row.input_tokens),
    cachedInput: Number(row.cached_input_tokens),
    cacheWrite: Number(row.cache_write_tokens),
    output: Number(row.output_tokens),
    reasoning: Number(row.reasoning_tokens),
  };
}
