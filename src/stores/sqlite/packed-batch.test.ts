import { expect, test } from "vitest";
import type { Outcome, Transition } from "../../credits/books.ts";
import { FREE, NO_TOKENS } from "../../credits/price.ts";
import { packOutcomes, packTransitions, unpackOutcomes, unpackTransitions } from "./packed-batch.ts";

const facts = {
  holdId: "hold_1",
  organizationId: "org_1",
  tokenId: "tok_1",
  requestId: "req_1",
  model: "sandbox/echo",
  upstream: "sandbox/echo",
  prices: { ...FREE, input: 7n },
  metadata: { team: "a" },
  idempotencyKey: "key",
};
const tokens = { ...NO_TOKENS, input: 1, output: 2, reasoning: 3 };
const attempts = [{ route: "sandbox/echo", outcome: "ok", durationMs: 5 }];
const trace = {
  isStreamed: true,
  firstTokenMs: 4,
  attempts,
  failure: "f",
  providerResponseId: "r",
  providerCost: "0.1",
};
const hold = { kind: "hold", facts, least: 1n, most: 2n, lifeMs: 3, owner: "owner" } as const;
const settle = { kind: "settle", facts, tokens, basis: "reported", end: "complete" } as const;
const idempotency = { key: "key", fingerprint: "f", keepMs: 9 };

const CASES: [given: Transition, expected?: Transition][] = [
  [hold, { ...hold, idempotency: null }],
  [{ ...hold, idempotency }],
  [settle, { ...settle, answer: null, trace: null }],
  [{ ...settle, answer: "{}", trace }],
  [{ ...settle, answer: null, trace: null, tokens: { ...tokens, further: { searches: 2 } } }],
  [{ ...settle, facts: { ...facts, prices: { ...FREE, further: { searches: 9n } } }, answer: null, trace: null }],
  [{ kind: "release", facts, trace }],
  [{ kind: "expire", organizationId: "org_1", holdId: "hold_1" }],
  [{ kind: "renew", facts, amount: 1n, tokens, lifeMs: 3, owner: "owner" }],
];

test.each(CASES)("a transition arrives as it was sent: %o", (given, expected = given) => {
  const cloned = structuredClone(packTransitions([given, given]));
  expect(unpackTransitions(cloned)).toEqual([expected, expected]);
});

test("transitions of one batch keep their order and their own prices", () => {
  const other = { ...facts, holdId: "hold_2", prices: { ...FREE, output: 2n ** 62n } };
  const batch = [
    { ...settle, answer: null, trace: null },
    { kind: "release", facts: other, trace: null },
    { ...hold, facts: other, idempotency: null },
    { ...hold, idempotency: null },
  ] as const;
  expect(unpackTransitions(structuredClone(packTransitions(batch)))).toEqual(batch);
});

test("outcomes arrive as they were sent, in their order", () => {
  const outcomes: Outcome[] = [
    { outcome: "charged", charged: 1n, shortfall: 2n, available: -(2n ** 62n) },
    { outcome: "charged" },
    { outcome: "held", amount: 2n ** 62n, available: 0n },
    { outcome: "insufficient", limitedBy: "token", available: 3n, reach: 4n },
    { outcome: "unknown_organization" },
  ];
  expect(unpackOutcomes(structuredClone(packOutcomes(outcomes)))).toEqual(outcomes);
});
