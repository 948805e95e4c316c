import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/postgres.ts";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
  usageOf,
} from "../support/service.ts";

/**
 * A word of sandbox/story is a token, and its prompt is one word: with a price on the output alone, a completion holds
 * exactly what it costs.
 */
const TOKENS = 10;
const PAID_FOR = 50;
const ASKED = 500;

interface Answer {
  status: number;
  code?: string;
  cost?: number;
  required?: number;
}

async function ask({ url }: { url: string }, token: string): Promise<Answer> {
  const body = { model: "story", messages: [{ role: "user", content: "go" }], max_tokens: TOKENS };
  const answer = await send({ url }, "/v1/chat/completions", token, body);
  const parsed = (await answer.json()) as {
    usage?: { cost: number };
    error?: { code: string; credits_required?: number };
  };
  return {
    status: answer.status,
    code: parsed.error?.code,
    cost: parsed.usage?.cost,
    required: parsed.error?.credits_required,
  };
}

const CONFIG = {
  limits: { requestsPerMinute: 100_000, tokensPerMinute: 100_000_000, concurrentRequests: 1000 },
  providers: [{ id: "sand", kind: "sandbox" }],
  models: [{ id: "story", price: { input: 0, output: 1_000 }, routes: [{ provider: "sand", model: "story" }] }],
};
const PRICE = (TOKENS * 1_000) / 1e6;

async function exercise(nodes: RunningService[], organization: Organization): Promise<void> {
  const at = (index: number) => nodes[index % nodes.length] as RunningService;
  const answers = await Promise.all(Array.from({ length: ASKED }, (_, index) => ask(at(index), organization.token)));
  const answered = answers.filter((answer) => answer.status === 200);
  expect(answered.length).toBeGreaterThan(0);
  expect(answered.length).toBeLessThanOrEqual(PAID_FOR);
  for (const { status, code } of answers) {
    if (status === 200) continue;
    expect([402, 429]).toContain(status);
    expect(code).toBe(status === 402 ? "insufficient_credits" : "credits_held");
  }
  let served = answered.length;
  let last = await ask(at(0), organization.token);
  while (last.status === 200) {
    served += 1;
    last = await ask(at(served), organization.token);
  }
  expect(served).toBe(PAID_FOR);
  expect(last).toMatchObject({ status: 402, code: "insufficient_credits" });
  const books = await usageOf(at(0), organization.token);
  expect(books.creditsUsed).toBeCloseTo(served * PRICE, 9);
  expect(books.creditsHeld).toBe(0);
  expect(books.creditsAvailable).toBeLessThan(PRICE);
  expect(last.required).toBe(PRICE);
  expect(await at(0).tollgate("ledger", "verify")).toMatchObject({ ok: true });
}

describe("500 concurrent completions of an organization with credits for 50", () => {
  test("Exactly 50 are answered and charged on SQLite.", async () => {
    const service = await startService({ config: CONFIG });
    try {
      await exercise([service], await makeOrganization(service, String(PAID_FOR * PRICE)));
    } finally {
      await service.end();
    }
  });

  describe("PostgreSQL", () => {
    let database: TestDatabase;
    beforeAll(async () => {
      database = await createTestDatabase();
    });
    afterAll(async () => {
      await database?.drop();
    });
    test("Exactly 50 are answered and charged by two services.", async () => {
      const first = await startService({ config: CONFIG, databaseUrl: database.url });
      const second = await startService({ config: CONFIG, databaseUrl: database.url });
      try {
        await exercise([first, second], await makeOrganization(first, String(PAID_FOR * PRICE)));
      } finally {
        await Promise.all([first.end(), second.end()]);
      }
    });
  });
});
