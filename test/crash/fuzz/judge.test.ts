import { expect, test } from "vitest";
import type { FuzzBooks, RequestRow } from "./books.ts";
import type { Ask, Call, Intent, Report } from "./intent.ts";
import { Judge } from "./judge.ts";
import { copyFaults, differences } from "./judge-books.ts";
import { bookedPrices } from "./prices.ts";

/** Shows the judge each fault that it must find. */
const AT = 1_790_000_000_000;
const TOKEN = { token: "secret", tokenId: "tok" };
const ACCOUNT = { id: "org", tokens: [TOKEN, TOKEN], isPoor: false };
const REPORT: Report = { prompt: 25, completion: 230, cached: 5, written: 2, reasoning: 30 };
const HELD = 1_000_000n;

interface Case {
  intent: Intent;
  row: RequestRow;
}

interface Happened {
  id: string;
  tokens: number[];
  basis: RequestRow["basis"];
  ending: string;
  report?: Report;
  call?: Partial<Call>;
  ask?: Partial<Ask>;
  intent?: Partial<Intent>;
}

/** A request for a streamed answer of one text of about two hundred tokens, and its row. */
function caseOf({ id, tokens, basis, ending, report, call, ask, intent }: Happened): Case {
  const text = `<${id}.1> ${"word ".repeat(200)}`;
  const requestId = `req_${id}`;
  const delta = { content: text };
  const pieces = [
    { events: [{ choices: [{ index: 0, delta }] }], whole: delta, leaves: [{ mark: `<${id}.1>`, text, isText: true }] },
  ];
  const prices = bookedPrices(0, "chat");
  const pico = tokens.reduce((sum, count, index) => sum + BigInt(count) * (prices[index] ?? 0n), 0n);
  const cost = ending === "released" ? 0n : (pico + 999_999n) / 1_000_000n;
  const stated = ending === "complete" ? `{"usage":{"cost":${Number(cost) / 1e6}}}` : "";
  const asked: Ask = {
    ...{ requestId, at: AT, maxTokens: 1_000, written: 1, hasFailed: false, isFinished: ending === "complete" },
    reports: report === undefined ? [] : [{ report, after: 1 }],
    ...ask,
  };
  const called: Call = {
    ...{ repetition: "first", node: 0, tokenId: "tok", sentAt: AT - 10, endedAt: AT + 2_000, status: 200, requestId },
    ...{ text: text + stated, end: ending === "complete" ? "complete" : "error" },
    ...call,
  };
  const answer: Intent["answer"] = {
    ...{ wire: "chat", pieces, reports: { kind: "plain", last: [] }, ending: ending === "complete" ? "whole" : "cut" },
    ...{ endsAfter: 1, finish: "stop", pauseMs: 0, isSplit: false, failsFirst: 0 },
  };
  return {
    intent: {
      ...{ id, inbound: "chat", model: "chat", reasons: false, account: ACCOUNT, tokenIndex: 0, isStreamed: true },
      ...{ maxTokens: 1_000, maxCost: null, key: null, prompt: `{{${id}}} ${"please ".repeat(10)}`, answer },
      ...{ leaving: null, repetitions: [], calls: [called], asks: [asked] },
      ...intent,
    },
    row: {
      ...{
        organization_id: "org",
        id,
        token_id: "tok",
        budgets: null,
        request_id: requestId,
        model: "chat",
        ending,
        basis,
        amount: HELD,
      },
      ...{ draws: JSON.stringify([["grant", String(cost)]]), cost, shortfall: 0n, made_at: BigInt(AT) },
      ...{ ended_at: BigInt(AT + 2_000), idempotency_caller_id: null, idempotency_key: null },
      ...{ tokens: tokens.map(BigInt), prices },
    },
  };
}

const COUNTED = [18, 0, 0, 207, 0];

function world() {
  const cases = {
    reported: caseOf({ id: "ra", tokens: [18, 5, 2, 200, 30], basis: "reported", ending: "complete", report: REPORT }),
    counted: caseOf({ id: "rb", tokens: COUNTED, basis: "counted", ending: "complete" }),
    broken: caseOf({ id: "rc", tokens: COUNTED, basis: "counted", ending: "upstream_failed" }),
    refused: caseOf({
      ...{ id: "rd", tokens: COUNTED, basis: null, ending: "released" },
      ...{ call: { status: 502, text: "{}", end: "error" }, ask: { written: 0, hasFailed: true } },
    }),
    left: caseOf({
      ...{
        id: "re",
        tokens: [18, 0, 0, 0, 95],
        basis: "estimated",
        ending: "client_disconnected",
        ask: { written: 0 },
      },
      ...{ call: { text: "", end: "left", endedAt: AT + 1_900 }, intent: { reasons: true } },
    }),
    absurd: caseOf({
      ...{ id: "rf", tokens: [25, 0, 0, 1_000, 0], basis: "bounded", ending: "complete" },
      report: { prompt: 25, completion: 2 ** 53 + 2 },
    }),
  };
  const requests = Object.values(cases).map(({ row }) => row);
  const spent = requests.reduce((sum, { cost }) => sum + cost, 0n);
  const books: FuzzBooks = {
    organizations: [{ id: "org" }],
    balances: [{ organization_id: "org", granted: HELD, available: HELD - spent, held: 0n, spent, expired: 0n }],
    grants: [
      { organization_id: "org", id: "grant", state: "active", amount: HELD, revoked: 0n, remaining: HELD - spent },
    ],
    ...{ budgets: [], holds: [], requests, adjustments: [], keys: [], closings: [], parts: [] },
  };
  return { cases, books };
}

type World = ReturnType<typeof world>;

const ALWAYS = [{ variant: 0, fromMs: 0, toMs: Number.POSITIVE_INFINITY }];

function judged({ cases, books }: World, periods = ALWAYS): string {
  const intents = Object.values(cases).map(({ intent }) => intent);
  return new Judge(books, { kills: [], periods }).faults(intents).join("\n");
}

/** Books other tokens for a request, at their prices, and changes everything that follows from it. */
function recharge({ books }: World, { row, intent }: Case, tokens: number[], basis = row.basis): void {
  const pico = tokens.reduce((sum, count, index) => sum + BigInt(count) * (row.prices[index] ?? 0n), 0n);
  const cost = (pico + 999_999n) / 1_000_000n;
  const more = cost - row.cost;
  Object.assign(row, { tokens: tokens.map(BigInt), cost, basis, draws: JSON.stringify([["grant", String(cost)]]) });
  for (const balance of books.balances) {
    balance.available -= more;
    balance.spent += more;
  }
  for (const grant of books.grants) grant.remaining -= more;
  for (const call of intent.calls) call.text = call.text.replace(/"cost":[\d.e-]+/, `"cost":${Number(cost) / 1e6}`);
}

test("the judge finds no fault in correct books", () => {
  expect(judged(world())).toBe("");
});

test("the judge accepts the prices of a request's sending, however late its hold was made", () => {
  const { cases, books } = world();
  for (const { intent } of Object.values(cases)) for (const call of intent.calls) call.sentAt = AT - 60_000;
  const periods = [
    { variant: 0, fromMs: 0, toMs: AT - 30_000 },
    { variant: 1, fromMs: AT - 40_000, toMs: Number.POSITIVE_INFINITY },
  ];
  expect(judged({ cases, books }, periods)).toBe("");
});

test("the judge accepts a count after a report that a piece without a mark followed", () => {
  const all = world();
  const { intent } = all.cases.reported;
  const unmarked = { events: [{ choices: [{ index: 0, delta: { scent: true } }] }], whole: {}, leaves: [] };
  intent.answer.pieces.push(unmarked);
  for (const ask of intent.asks) ask.written = 2;
  recharge(all, all.cases.reported, [18, 5, 2, 232, 0], "counted");
  expect(judged(all)).toBe("");
});

test.each<[string, (all: World) => unknown, RegExp]>([
  ["another cost than the price", ({ cases }) => (cases.counted.row.cost += 1n), /its tokens .* cost/],
  ["another price than any in force", ({ cases }) => (cases.broken.row.prices = [1n, 1n, 1n, 1n, 1n]), /are none of/],
  ["a cost above the hold", ({ cases }) => (cases.absurd.row.amount = 100n), /and 100 were held/],
  ["a shortfall", ({ cases }) => (cases.counted.row.shortfall = 1n), /a shortfall of 1/],
  ["another report", (all) => recharge(all, all.cases.reported, [18, 5, 2, 201, 30]), /none of: reported/],
  ["a report in other classes", (all) => recharge(all, all.cases.reported, [20, 3, 2, 200, 30]), /none of: reported/],
  ["a report that was not believed", (all) => recharge(all, all.cases.reported, COUNTED, "counted"), /none of/],
  [
    "an absurd report",
    ({ cases }) => (cases.absurd.row.tokens = [25n, 0n, 0n, 1_001n, 0n]),
    /1001 tokens .* at most 1000/,
  ],
  [
    "too little of an answer without a report",
    (all) => recharge(all, all.cases.counted, [18, 0, 0, 150, 0]),
    /none of: counted/,
  ],
  [
    "too much of an answer without a report",
    (all) => recharge(all, all.cases.counted, [18, 0, 0, 330, 0]),
    /none of: counted/,
  ],
  ["a prompt that is not charged", (all) => recharge(all, all.cases.counted, [0, 0, 0, 207, 0]), /none of: counted/],
  ["a part that is not charged", (all) => recharge(all, all.cases.broken, [18, 0, 0, 0, 0]), /none of: counted/],
  [
    "a part that was delivered for nothing",
    ({ cases }) => Object.assign(cases.broken.row, { ending: "released", cost: 0n }),
    /for nothing/,
  ],
  ["hidden output below the estimate", (all) => recharge(all, all.cases.left, [18, 0, 0, 0, 40]), /none of: counted/],
  ["an error that costs", ({ cases }) => Object.assign(cases.refused.row, { ending: "upstream_failed" }), /cost/],
  ["a charge without an upstream", ({ cases }) => (cases.left.intent.asks = []), /no upstream was asked/],
  [
    "a charge that nobody knows of",
    ({ cases }) => (cases.broken.row.request_id = "req_other"),
    /no client knows of it/,
  ],
  ["an answer without a hold", ({ books }) => books.requests.splice(1, 1), /an answer without a hold/],
  [
    "a cost that the client was not told",
    ({ cases }) => ((cases.counted.intent.calls[0] as Call).text = '{"cost":1}'),
    /it says that it cost/,
  ],
  [
    "a text of another request",
    ({ cases }) => ((cases.counted.intent.calls[0] as Call).text += "<ra.1>"),
    /1 texts of another request/,
  ],
  [
    "an answer that is cut off",
    ({ cases }) => ((cases.broken.intent.calls[0] as Call).end = "cut"),
    /no service was killed/,
  ],
  [
    "an internal error",
    ({ cases }) => ((cases.broken.intent.calls[0] as Call).text += "internal_error"),
    /an internal error/,
  ],
  [
    "a key that was charged twice",
    ({ books }) => {
      for (const row of books.requests.slice(0, 2))
        Object.assign(row, { idempotency_caller_id: "tok", idempotency_key: "k" });
    },
    /was charged 2 times/,
  ],
  [
    "credits from nowhere",
    ({ books }) => ((books.balances[0] as { granted: bigint }).granted += 1n),
    /granted 1000001/,
  ],
  [
    "a draw on no grant",
    ({ cases }) => (cases.counted.row.draws = '[["gone","1"]]'),
    /draws on grants that do not exist/,
  ],
  ["a row of no organization", ({ books }) => (books.organizations = []), /of no organization/],
  [
    "a hold that is still open",
    ({ books }) =>
      books.holds.push({ organization_id: "org", id: "ra", draws: "[]", budgets: null, amount: 0n, expires_at: 0n }),
    /both open and ended/,
  ],
])("the judge finds %s", (_what, tamper, expected) => {
  const tampered = world();
  tamper(tampered);
  expect(judged(tampered)).toMatch(expected);
});

test("the judge finds a booked row that changed after a copy, and a copy that differs", () => {
  const [{ books: copy }, { books }] = [world(), world()];
  expect([...copyFaults(copy, books), ...differences(copy, books)]).toEqual([]);
  (books.requests[0] as RequestRow).cost += 1n;
  expect(copyFaults(copy, books).join()).toMatch(/^copy: /);
  expect(differences(copy, books)).toEqual(["a copy differs in requests"]);
});
