import fc from "fast-check";
import { TOKEN_CLASSES } from "../../src/api/price-classes.ts";
import { NO_TOKENS } from "../../src/credits/price.ts";
import type { SpooledTransition } from "../../src/ledger/spool-file.ts";
import { factsOf } from "./open-ledger.ts";

/** Text with everything that could be taken for the end of a line or of a record. */
const text = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("\n", "\r\n", "\u2028", "\n0badc0de {}\n", ""));

const prices = fc
  .array(fc.bigInt({ min: 0n, max: 10n ** 15n }), { minLength: TOKEN_CLASSES.length, maxLength: TOKEN_CLASSES.length })
  .map(([input = 0n, cachedInput = 0n, cacheWrite = 0n, output = 0n, reasoning = 0n]) => {
    return { input, cachedInput, cacheWrite, output, reasoning };
  })
  .chain((classes) => {
    const tier = { from: "2027-01-01", serviceTier: "flex", abovePromptTokens: 1000 };
    return fc.constantFrom(classes, { ...classes, tier }, { ...classes, searches: classes.output });
  });

const facts = fc.record({
  holdId: fc.uuid(),
  organizationId: fc.uuid(),
  tokenId: text,
  requestId: text,
  model: text,
  upstream: text,
  prices,
  metadata: fc.option(fc.dictionary(text, text, { noNullPrototype: true })),
  idempotencyKey: fc.option(fc.record({ callerId: text, key: text })),
});

const settle = fc.record({
  kind: fc.constant("settle" as const),
  facts,
  tokens: fc.nat().map((input) => ({ ...NO_TOKENS, input, ...(input > 9 && { inputAudio: 9 }) })),
  basis: fc.constantFrom("reported" as const, "counted" as const),
  end: fc.constantFrom("complete" as const, "client_disconnected" as const),
});

const release = fc.record({ kind: fc.constant("release" as const), facts });

/** Transitions that a spool can contain. */
export const spooledTransitions: fc.Arbitrary<SpooledTransition> = fc.oneof(settle, release);

/** A release, told apart by its hold. */
export function releaseOf(holdId: string): SpooledTransition {
  return { kind: "release", facts: factsOf(holdId) };
}
