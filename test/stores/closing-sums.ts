import fc from "fast-check";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { RequestRow } from "../../src/credits/books.ts";
import { decodeLines, encodeLines } from "../../src/credits/charge-lines.ts";
import { ClosingTally } from "../../src/credits/closing.ts";
import { NO_TOKENS, priceOf, type TokenCounts, tokenTotals, type UnitPrices } from "../../src/credits/price.ts";
import { isBookedLate } from "../../src/credits/request-id.ts";
import { checkRequestRow } from "../../src/stores/queries/verify-rows.ts";
import { REQUEST } from "../../src/stores/schema.ts";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { PRICES, type Subject } from "./fixture.ts";

const DAY_MS = 86_400_000;
const BEFORE_MS = Date.UTC(2024, 3, 1);
const RUNS = countOf("sums");
/** Names that JSON escapes, and such that look like the text between two draws. */
const GRANTS = ["grant_1", "grant_2", "", 'a"b', "a\\", "a\\\\", 'x","5"],["y', "é🦊", "]]"];

/** Makes a row that violates an invariant, or one that is only rare. */
const CHANGES: Record<string, (row: RequestRow) => Partial<RequestRow>> = {
  none: () => ({}),
  tokens: (row) => changed(row, ({ input }) => ({ input: input + 1 })),
  searches: (row) => changed(row, () => ({ searches: 2 })),
  audio: (row) => changed(row, ({ output }) => ({ outputAudio: output })),
  tooManyParts: (row) => changed(row, ({ output }) => ({ outputAudio: output + 1 })),
  sums: ({ inputTokens }) => ({ inputTokens: inputTokens + 1 }),
  cost: ({ cost }) => ({ cost: cost + 1n }),
  shortfall: ({ shortfall }) => ({ shortfall: shortfall + 1n }),
  paidLater: ({ cost, shortfall }) => ({ cost: 0n, shortfall: cost + shortfall, draws: [] }),
  noDraws: () => ({ draws: [] }),
  draw: ({ draws }) => ({ draws: draws.map(({ grantId, amount }) => ({ grantId, amount: amount + 1n })) }),
  negativeDraw: ({ draws, cost }) => ({
    draws: [...draws.map((draw) => ({ ...draw, amount: cost + 1n })).slice(0, 1), { grantId: "g", amount: -1n }],
  }),
  twice: ({ draws }) => ({ draws: [...draws, ...draws] }),
  noDraw: ({ draws }) => ({ draws: [...draws, { grantId: "g", amount: 0n }] }),
  released: () => ({ end: "released", basis: null }),
  releasedWithBasis: () => ({ end: "released" }),
  noBasis: () => ({ basis: null }),
  late: ({ isLate }) => ({ isLate: !isLate }),
  noTime: ({ holdId }) => ({ holdId: `${holdId.slice(0, 13)}x${holdId.slice(14)}` }),
  noHex: ({ holdId }) => ({ holdId: `${holdId.slice(0, 12)}g${holdId.slice(13)}` }),
  shifted: ({ holdId }) => ({ holdId: `${holdId.slice(0, 7)}-${holdId.slice(7, 8)}${holdId.slice(9)}` }),
};

function changed({ charge }: RequestRow, change: (tokens: TokenCounts) => Partial<TokenCounts>): Partial<RequestRow> {
  const { tokens, prices } = decodeLines(charge);
  return chargedOf({ ...tokens, ...change(tokens) }, prices);
}

function chargedOf(tokens: TokenCounts, prices: UnitPrices) {
  const { input, output } = tokenTotals(tokens);
  return { charge: encodeLines(tokens, prices), inputTokens: input, outputTokens: output };
}

const count = fc.constantFrom(0, 1, 7, 999_999, 1_000_000_000, 1_000_000_001);
const price = fc.constantFrom(0n, 1n, 999_999n, 1_000_000n, 1_000_000_000n, 1_000_000_001n, 10n ** 14n);
const rows = fc.array(
  fc.record({
    day: fc.integer({ min: 0, max: 80 }),
    /** Milliseconds from its id to its booking. */
    bookedAfterMs: fc.constantFrom(0, 500, DAY_MS, DAY_MS + 1, -DAY_MS, -DAY_MS - 1, 3 * DAY_MS),
    tokenId: fc.constantFrom("tok_1", "tok_2"),
    input: fc.tuple(fc.constantFrom(0, 5, 1_000_000), fc.constantFrom(0n, 7n, 1_500_000n)),
    output: fc.tuple(count, price),
    grants: fc.tuple(fc.constantFrom(...GRANTS), fc.constantFrom(...GRANTS)),
    hasTwoDraws: fc.boolean(),
    change: fc.constantFrom("none", "none", "none", "none", ...Object.keys(CHANGES)),
  }),
  { minLength: 1, maxLength: 9 },
);
type Drawn = Parameters<Parameters<typeof rows.map>[0]>[0][number];

function rowOf(organizationId: string, drawn: Drawn): RequestRow {
  const { day, bookedAfterMs, tokenId, input, output, grants, hasTwoDraws, change } = drawn;
  const beganMs = Date.UTC(2024, 0, 5) + day * DAY_MS;
  const holdId = v7({ msecs: beganMs });
  const prices = { ...PRICES, input: input[1], output: output[1] };
  const tokens = { ...NO_TOKENS, input: input[0], output: output[0] };
  const cost = priceOf(tokens, prices);
  const [first, second] = grants;
  const draws =
    hasTwoDraws && cost > 1n
      ? [
          { grantId: first, amount: 1n },
          { grantId: second, amount: cost - 1n },
        ]
      : [{ grantId: first, amount: cost }].filter(({ amount }) => amount > 0n);
  const endedAtMs = beganMs + bookedAfterMs;
  const facts = { organizationId, tokenId, requestId: "req", model: "m", upstream: "u", metadata: null };
  const row: RequestRow = {
    ...{
      ...facts,
      ...chargedOf(tokens, prices),
      holdId,
      amount: cost,
      cost,
      shortfall: 0n,
      draws,
      budgets: null,
      basis: "reported",
      end: "complete",
    },
    ...{ madeAtMs: beganMs, endedAtMs, isLate: isBookedLate(holdId, endedAtMs), trace: null, idempotencyKey: null },
    retry: null,
  };
  return { ...row, ...CHANGES[change]?.(row) };
}

function insertion(row: RequestRow): string {
  const { columns, toCells } = REQUEST.partOf();
  const cells = toCells(row);
  const literal = (value: unknown) => {
    if (value === null || value === undefined) return "null";
    return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
  };
  return `insert into request (${columns.join(", ")}) values (${cells.map(literal).join(", ")})`;
}

/** The sums, in an order that can be compared. */
function sumOf(tally: ClosingTally) {
  const parts = tally.parts().map(({ dimension, name, amount }) => `${dimension} ${name} ${amount}`);
  return { total: tally.total(), parts: parts.sort() };
}

function expected(organizationId: string, requests: readonly RequestRow[]) {
  const tally = new ClosingTally(organizationId, BEFORE_MS, undefined, []);
  let isSound = true;
  for (const request of requests) {
    checkRequestRow(request, [], () => {
      isSound = false;
    });
    if (isSound) tally.add(request);
  }
  return isSound ? sumOf(tally) : undefined;
}

export function closingSumCases(subject: Subject): void {
  test(
    "a sum is that of the rows, and a row that violates an invariant is found",
    async () => {
      const property = fc.asyncProperty(rows, fc.integer({ min: 1, max: 10 }), async (drawn, chunk) => {
        const organizationId = await subject.organization();
        const requests = drawn.map((one) => rowOf(organizationId, one));
        for (const request of requests) await subject.write(insertion(request));
        const tally = new ClosingTally(organizationId, BEFORE_MS, undefined, []);
        const add = async () => {
          while (!(await subject.store.closings.sum(tally, chunk)));
          return sumOf(tally);
        };
        const sum = await add().catch((error: Error) => {
          expect(error.message).toContain("violates an invariant");
          return undefined;
        });
        expect(sum).toEqual(expected(organizationId, requests));
        await subject.write(`delete from request where organization_id = '${organizationId}'`);
      });
      await fc.assert(property, { numRuns: RUNS, seed: seedOfRun(), endOnFailure: true });
    },
    timeoutOf("sums"),
  );
}
