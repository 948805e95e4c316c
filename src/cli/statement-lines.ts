import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import { pricePerMillion, TOKEN_CLASSES, type UnitPrices } from "../credits/price.ts";
import type { StatementEntry } from "../stores/queries/statement.ts";
import { isoTime } from "./times.ts";

/** The lines of a statement, for people, for spreadsheets and for programs. */

export function textLine([time, kind, credits, balance, what]: [string, string, string, string, string]): string {
  return `${time.padEnd(24)}  ${kind.padEnd(7)}  ${credits.padStart(18)}  ${balance.padStart(18)}  ${what}`.trimEnd();
}

export function textOfEntry(entry: StatementEntry, balance: MicroCredits): string {
  const sign = entry.amount > 0n ? "+" : "";
  const credits = `${sign}${formatCredits(entry.amount)}`;
  return textLine([isoTime(entry.atMs), entry.kind, credits, formatCredits(balance), whatOf(entry)]);
}

function whatOf(entry: StatementEntry): string {
  switch (entry.kind) {
    case "grant": {
      const { id, reference } = entry.grant;
      return reference === null ? id : `${id} (${reference})`;
    }
    case "charge": {
      const { model, requestId, end, shortfall } = entry.event;
      const ended = end === "complete" ? "" : ` (${end.replaceAll("_", " ")})`;
      return `${model} ${requestId}${ended}${shortfall > 0n ? `, ${formatCredits(shortfall)} not covered` : ""}`;
    }
    case "lapse":
      return entry.adjustment.draws.map(({ grantId }) => grantId).join(" ");
    default: {
      const { id, reference, note } = entry.adjustment;
      return [id, reference === null ? "" : `(${reference})`, note ?? ""].filter((word) => word !== "").join(" ");
    }
  }
}

export function entryJson(entry: StatementEntry, balance: MicroCredits) {
  const { kind, atMs, amount } = entry;
  const line = {
    kind,
    at: isoTime(atMs),
    credits: creditsFromMicro(amount),
    balance: creditsFromMicro(balance),
  };
  switch (entry.kind) {
    case "grant": {
      const { id, effectiveAtMs, expiresAtMs, reference, state } = entry.grant;
      const dates = { effectiveAt: isoTime(effectiveAtMs), expiresAt: isoTime(expiresAtMs) };
      return { ...line, id, state, ...dates, reference };
    }
    case "charge": {
      const { holdId, sequence, requestId, tokenId, model, upstream, tokens, basis, end, metadata } = entry.event;
      const request = { holdId, sequence, requestId, tokenId, model, upstream, tokens };
      const cost = { prices: pricesJson(entry.event.prices), cost: creditsFromMicro(entry.event.cost) };
      return { ...line, ...request, ...cost, basis, end, shortfall: creditsFromMicro(entry.event.shortfall), metadata };
    }
    default: {
      const { id, draws, holdId, reference, note } = entry.adjustment;
      return { ...line, id, grants: draws.map(({ grantId }) => grantId), holdId, reference, note };
    }
  }
}

/** Credits per million tokens. */
function pricesJson(prices: UnitPrices): Record<string, number> {
  return Object.fromEntries(TOKEN_CLASSES.map((tokenClass) => [tokenClass, pricePerMillion(prices[tokenClass])]));
}
