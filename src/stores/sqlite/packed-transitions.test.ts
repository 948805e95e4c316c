import { expect, test } from "vitest";
import type { Transition } from "../../credits/books.ts";
import { FREE, NO_TOKENS } from "../../credits/price.ts";
import { packTransitions, unpackTransitions } from "./packed-transitions.ts";

const facts = {
  holdId: "hold_1",
  organizationId: "org_1",
  tokenId: "tok_1",
  requestId: "req_1",
  model: "sandbox/echo",
  upstream: "sandbox/echo",
  prices: { ...FREE, input: 7n },
  metadata: { team: "a" },
  idempotencyKey: { callerId: "tok_first", key: "key" },
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
const idempotency = { callerId: "tok_first", key: "key", fingerprint: "f", keepMs: 9 };

const CASES: [given: Transition, expected?: Transition][] = [
  [hold, { ...hold, idempotency: null }],
  [{ ...hold, idempotency }],
  [settle, { ...settle, answer: null, trace: null }],
  [{ ...settle, answer: "{}", trace }],
  [{ ...settle, answer: null, trace: null, tokens: { ...tokens, further: { searches: 2 } } }],
  [{ kind: "release", facts, trace }],
  [{ kind: "expire", organizationId: "org_1", holdId: "hold_1" }],
  [{ kind: "renew", facts, amount: 1n, tokens, lifeMs: 3, owner: "owner" }],
];

test.each(CASES)("a transition arrives as it was sent: %o", (given, expected = given) => {
  const cloned = structuredClone(packTransitions([given, given]));
  expect(unpackTransitions(cloned)).toEqual([expected, expected]);
});
