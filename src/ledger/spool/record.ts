import { crc32 } from "node:zlib";
import type { HoldFacts, ReleaseTransition, SettleTransition } from "../../credits/books.ts";
import { TOKEN_CLASSES, type UnitPrices } from "../../credits/price.ts";

/** What ends a hold: the transitions that wait in a spool while the store is away. */
export type SpooledTransition = SettleTransition | ReleaseTransition;

/** Of the checksum in hexadecimal digits, and of the space behind it. */
const CHECKSUM_DIGITS = 8;
const HEAD_BYTES = CHECKSUM_DIGITS + 1;

/**
 * A record of a spool: a line with the checksum of its text and the text. It begins with the end of a line as well, so
 * that whatever stands before it, torn or damaged, takes nothing of it along.
 */
export function toRecord(transition: SpooledTransition): Buffer {
  const text = Buffer.from(JSON.stringify(toPlain(transition)));
  return Buffer.concat([Buffer.from(`\n${checksumOf(text)} `), text, Buffer.from("\n")]);
}

/** Reads a line of a spool; undefined where it is not what was written, or nothing that this version knows. */
export function fromRecord(line: Buffer): SpooledTransition | undefined {
  const text = line.subarray(HEAD_BYTES);
  if (line.toString("latin1", 0, HEAD_BYTES) !== `${checksumOf(text)} `) return undefined;
  try {
    return fromPlain(JSON.parse(text.toString()));
  } catch {
    return undefined;
  }
}

/** A transition as JSON can hold it: prices as decimal text. */
export function toPlain(transition: SpooledTransition): object {
  const { facts } = transition;
  return { ...transition, facts: { ...facts, prices: mapPrices(facts.prices, String) } };
}

type Plain<Transition> = Omit<Transition, "facts"> & {
  facts: Omit<HoldFacts, "prices"> & { prices: Record<keyof UnitPrices, string> };
};

function fromPlain(plain: Plain<SettleTransition> | Plain<ReleaseTransition>): SpooledTransition | undefined {
  if (plain.kind !== "settle" && plain.kind !== "release") return undefined;
  const { facts } = plain;
  return { ...plain, facts: { ...facts, prices: mapPrices(facts.prices, BigInt) } };
}

function mapPrices<From, To>(prices: Record<keyof UnitPrices, From>, map: (price: From) => To) {
  const entries = TOKEN_CLASSES.map((tokenClass) => [tokenClass, map(prices[tokenClass])]);
  return Object.fromEntries(entries) as Record<keyof UnitPrices, To>;
}

function checksumOf(text: Buffer): string {
  return crc32(text).toString(16).padStart(CHECKSUM_DIGITS, "0");
}
