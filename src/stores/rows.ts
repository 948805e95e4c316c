import type { Selectable } from "kysely";
import type { BalanceRow, Draw, GrantRow, HoldRow, UsageEventRow } from "../credits/books.ts";
import type { TokenCounts, UnitPrices } from "../credits/price.ts";
import type { BalanceTable, CreditGrantTable, HoldTable, UsageEventTable } from "./tables.ts";

/** Rows of the tables to rows of the books and back, the same for both stores. */

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

export function balanceToTable(row: BalanceRow): { [Column in keyof BalanceTable]: string | bigint | number | null } {
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
    amount: row.amount,
    remaining: row.remaining,
    state: row.state,
    effectiveAtMs: Number(row.effective_at),
    expiresAtMs: optionalNumber(row.expires_at),
    priority: Number(row.priority),
    reference: row.reference,
    createdAtMs: Number(row.created_at),
  };
}

export function grantToTable(row: GrantRow): { [Column in keyof CreditGrantTable]: string | bigint | number | null } {
  return {
    organization_id: row.organizationId,
    id: row.id,
    amount: row.amount,
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
  };
}

export function holdToTable(row: HoldRow): { [Column in keyof HoldTable]: string | bigint | number | null } {
  return {
    organization_id: row.organizationId,
    id: row.holdId,
    token_id: row.tokenId,
    request_id: row.requestId,
    model: row.model,
    upstream: row.upstream,
    ...pricesToTable(row.prices),
    metadata: encodeMetadata(row.metadata),
    amount: row.amount,
    ...tokensToTable(row.tokens),
    idempotency_key: row.idempotencyKey,
    made_at: row.madeAtMs,
    expires_at: row.expiresAtMs,
    draws: encodeDraws(row.draws),
    state: row.state,
    charged: row.charged,
    shortfall: row.shortfall,
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

export function eventToTable(row: UsageEventRow): {
  [Column in keyof UsageEventTable]: string | bigint | number | null;
} {
  return {
    organization_id: row.organizationId,
    hold_id: row.holdId,
    sequence: row.sequence,
    token_id: row.tokenId,
    request_id: row.requestId,
    model: row.model,
    upstream: row.upstream,
    ...pricesToTable(row.prices),
    metadata: encodeMetadata(row.metadata),
    ...tokensToTable(row.tokens),
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

function pricesToTable(prices: UnitPrices) {
  return {
    input_price: prices.input,
    cached_input_price: prices.cachedInput,
    cache_write_price: prices.cacheWrite,
    output_price: prices.output,
    reasoning_price: prices.reasoning,
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

function tokensToTable(tokens: TokenCounts) {
  return {
    input_tokens: tokens.input,
    cached_input_tokens: tokens.cachedInput,
    cache_write_tokens: tokens.cacheWrite,
    output_tokens: tokens.output,
    reasoning_tokens: tokens.reasoning,
  };
}
