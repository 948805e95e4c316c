import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { countOf, timeoutOf } from "../../test/support/counts.ts";
import { MemoryBooks } from "../../test/support/memory-books.ts";
import type { EventEnd, HoldFacts, Intent } from "./facts.ts";
import { FREE, NO_TOKENS } from "./price.ts";

/*
 * Clients that repeat a request as an SDK does, until they have a complete answer. The sums are those of a plain rule: a client
 * pays for the answer that it gets, however often it was broken before, and for what it left.
 */

const RUNS = countOf("decisions");
const LONGEST_MS = timeoutOf("decisions");
const ORGANIZATION = "org_1";
const COMPLETE = 10;

type End = Exclude<EventEnd, "complete"> | "released";

interface Attempt {
  end: End;
  /** Tokens that were delivered; each costs one micro-credit. */
  delivered: number;
}

interface Client {
  tokenId: string;
  body: string;
  /** Its attempts before the complete answer. */
  broken: Attempt[];
}

const BREAKS: readonly End[] = ["upstream_failed", "timed_out", "service_failed", "recovered", "released"];

const clientWith = (ends: readonly End[]): fc.Arbitrary<Client> =>
  fc.record({
    tokenId: fc.constantFrom("tok_1", "tok_1", "tok_2"),
    body: fc.constantFrom("body", "body", "other body"),
    broken: fc.array(fc.record({ end: fc.constantFrom(...ends), delivered: fc.integer({ min: 0, max: COMPLETE }) }), {
      maxLength: 5,
    }),
  });

/** Yields after each transition of a client, so that those of others come in between. */
function* run(books: MemoryBooks, client: Client, name: string): Generator<void> {
  const attempts = [...client.broken, { end: "complete" as const, delivered: COMPLETE }];
  for (const [index, { end, delivered }] of attempts.entries()) {
    const { tokenId, body } = client;
    const intent: Intent = { callerId: tokenId, fingerprint: body };
    // Before the hold, only a retry has an intent.
    const facts: HoldFacts = {
      ...{
        holdId: `${name}_${index}`,
        organizationId: ORGANIZATION,
        tokenId,
        requestId: "req",
        model: "m",
        upstream: "u",
      },
      ...{ prices: { ...FREE, output: 1_000_000n }, metadata: null, idempotencyKey: null },
      ...(index > 0 && { intent }),
    };
    const most = BigInt(COMPLETE);
    const held = books.bookOne({ kind: "hold", facts, callerId: tokenId, least: most, most, lifeMs: 0, owner: "o" });
    expect(held).toMatchObject({ outcome: "held", amount: most });
    yield;
    const ended = { facts: { ...facts, intent }, tokens: { ...NO_TOKENS, output: delivered } };
    if (end === "released") books.bookOne({ kind: "release", facts });
    else if (end !== "recovered") books.bookOne({ kind: "settle", ...ended, basis: "counted", end });
    else {
      books.bookOne({ kind: "renew", ...ended, amount: most, lifeMs: 0, owner: "o" });
      books.bookOne({ kind: "expire", organizationId: ORGANIZATION, holdId: facts.holdId });
    }
    yield;
  }
}

/** Runs clients in an order, and returns what each token was charged. */
function chargesOf(clients: readonly Client[], order: readonly number[]): Map<string, bigint> {
  const books = new MemoryBooks();
  books.addOrganization(ORGANIZATION);
  const grant = { kind: "grant", grantId: "grant", organizationId: ORGANIZATION, amount: 1_000_000n } as const;
  books.bookOne({ ...grant, effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null });
  const running = clients.map((client, index) => run(books, client, `client_${index}`));
  for (const index of order) running[index % running.length]?.next();
  for (const client of running) for (const _ of client);
  const charges = new Map<string, bigint>();
  const repeated = new Set<string>();
  for (const { tokenId, charged, retry } of books.seen.values()) {
    charges.set(tokenId, (charges.get(tokenId) ?? 0n) + charged);
    if (retry === null) continue;
    const attempt = books.requests.get(`${ORGANIZATION} ${retry.of}`);
    expect(attempt?.tokenId).toBe(tokenId);
    expect(repeated).not.toContain(retry.of);
    repeated.add(retry.of);
  }
  const all = [...charges.values()].reduce((sum, charged) => sum + charged, 0n);
  expect(books.balances.get(ORGANIZATION)).toMatchObject({ spent: all, held: 0n });
  return charges;
}

describe("clients that repeat broken requests", () => {
  test(
    "Each client is charged one complete answer, whatever broke before it and whoever else has the same body.",
    () => {
      const clients = fc.array(clientWith(BREAKS), { minLength: 1, maxLength: 5 });
      fc.assert(
        fc.property(clients, fc.array(fc.nat({ max: 59 }), { maxLength: 60 }), (clients, order) => {
          const expected = new Map<string, bigint>();
          for (const { tokenId } of clients) expected.set(tokenId, (expected.get(tokenId) ?? 0n) + BigInt(COMPLETE));
          expect(chargesOf(clients, order)).toEqual(expected);
        }),
        { numRuns: RUNS },
      );
    },
    LONGEST_MS,
  );

  test(
    "A client that leaves attempts and repeats them pays at least as much as if it had stayed in the first one that it left.",
    () => {
      fc.assert(
        fc.property(clientWith([...BREAKS, "client_disconnected"]), (leaver) => {
          const left = leaver.broken.findIndex(({ end }) => end === "client_disconnected");
          const stayer = { ...leaver, broken: left < 0 ? leaver.broken : leaver.broken.slice(0, left) };
          const [paid, stayed] = [leaver, stayer].map((client) => chargesOf([client], []).get(leaver.tokenId) ?? 0n);
          expect(paid).toBeGreaterThanOrEqual(stayed ?? 0n);
        }),
        { numRuns: RUNS },
      );
    },
    LONGEST_MS,
  );
});
