import { describe, expect, test } from "vitest";
import type { TrialActions } from "./actions.ts";
import type { Balance, Books, Event, Hold } from "./books.ts";
import { Checker } from "./checker.ts";
import { scriptOf } from "./load.ts";
import { PRICES, priceOf, toPico } from "./prices.ts";
import type { Record } from "./records.ts";

/** Shows the checker each fault that it must find. */
const LIMITS = { holdLifeMs: 3_000, renewEveryMs: 250, recoveryMs: 480_000, slackMs: 100 };
const KILLED_AT = 10_000;

const tokens = (input: bigint, cached: bigint, output: bigint) => ({
  input_tokens: input,
  cached_input_tokens: cached,
  cache_write_tokens: 0n,
  output_tokens: output,
  reasoning_tokens: 0n,
});

function holdOf(fields: Partial<Hold> & { id: string }): Hold {
  const metadata = JSON.stringify({ request: fields.id });
  const times = { made_at: 8_000n, expires_at: 12_900n };
  const amounts = { amount: 100n, charged: 0n, shortfall: 0n };
  return { organization_id: "org", metadata, ...times, ...amounts, state: "charged", ...tokens(0n, 0n, 0n), ...fields };
}

function eventOf(hold: Hold, used: ReturnType<typeof tokens>, fields: Partial<Event> = {}): Event {
  return {
    ...{ organization_id: "org", hold_id: hold.id, metadata: hold.metadata, sequence: 0n, basis: "reported" },
    ...{ cost: priceOf(used), shortfall: 0n, ending: "complete", charged_at: 9_000n, ...used },
    input_price: toPico(PRICES.input),
    cached_input_price: toPico(PRICES.cachedInput),
    output_price: toPico(PRICES.output),
    ...fields,
  };
}

function recordOf(id: string, client: Partial<Record["client"]>, upstream: Partial<Record["upstream"]> = {}): Record {
  return {
    ...{ id, script: scriptOf(id, { words: 10 }), streamed: true, organizationId: "org" },
    client: { status: 200, end: "all", code: undefined, usage: undefined, wordsAt: [], endedAt: 9_500, ...client },
    upstream: { asked: 1, askedAt: 8_000, words: 10, sentUsage: false, sentAll: false, ...upstream },
  };
}

/** Creates four requests: one complete, one cut off by the kill, one refused, one completed by the upstream and cut off. */
function world() {
  const [whole, cut, refused, document] = ["t-whole", "t-cut", "t-refused", "t-document"];
  const holds = [
    holdOf({ id: whole }),
    holdOf({ id: cut, state: "expired" }),
    holdOf({ id: refused, state: "released" }),
    holdOf({ id: document, state: "released" }),
    holdOf({ id: "other", state: "open" }),
  ];
  const [first, second] = holds as [Hold, Hold];
  const events = [
    eventOf(first, tokens(47n, 3n, 13n)),
    eventOf(second, tokens(12n, 0n, 8n), { ending: "recovered", basis: "counted" }),
  ];
  const spent = events.reduce((sum, { cost }) => sum + cost, 0n);
  const balance: Balance = {
    organization_id: "org",
    granted: 5_000n,
    available: 4_900n - spent,
    held: 100n,
    spent,
    expired: 0n,
  };
  const books: Books = { now: 20_000, balances: [balance], grants: [], counted: [], holds, events };
  const usage = {
    ...{ prompt_tokens: 50, completion_tokens: 13, prompt_tokens_details: { cached_tokens: 3 } },
    cost: Number(priceOf(tokens(47n, 3n, 13n))) / 1e6,
  };
  const wordsAt = Array.from({ length: 10 }, (_, index) => 9_000 + index * 100);
  const records = [
    recordOf(whole, { usage, wordsAt }, { sentUsage: true, sentAll: true }),
    recordOf(cut, { end: "cut", wordsAt: wordsAt.slice(0, 8), endedAt: KILLED_AT }, { words: 8 }),
    recordOf(refused, { status: 503, end: "error", code: "store_unavailable" }, { asked: 0, words: 0 }),
    { ...recordOf(document, { status: undefined, end: "cut", endedAt: KILLED_AT }, { words: 0 }), streamed: false },
  ];
  const actions: TrialActions = {
    records: new Map(records.map((record) => [record.id, record])),
    repeated: new Map([[whole, structuredClone(records[0] as Record)]]),
    ...{
      killedAt: KILLED_AT,
      bookedAt: undefined,
      storeWasUnavailable: true,
      wasSuspended: false,
      lacksCredits: false,
    },
  };
  return { books, actions, balance, whole: records[0] as Record, cut: records[1] as Record };
}

function judge({ books, actions }: ReturnType<typeof world>, limits = LIMITS): string[] {
  const checker = new Checker(limits);
  // The checker reads the books at the moment of the kill.
  const cut = books.holds.filter(({ id }) => id === "t-cut").map((hold) => ({ ...hold, state: "open" }));
  checker.noteOpenHolds({ ...books, now: KILLED_AT, holds: cut });
  return [...checker.checkBooks(books), ...checker.checkCharges(books, actions)];
}

test("the checker finds no fault in correct books", () => {
  expect(judge(world())).toEqual([]);
});

test("without a clock, the checker requires only what was found in the books", () => {
  const limits = { ...LIMITS, slackMs: Number.POSITIVE_INFINITY };
  const late = world();
  for (const hold of late.books.holds) hold.expires_at = 4_000n;
  Object.assign(late.books.events[1] ?? {}, tokens(12n, 0n, 3n));
  const own = (faults: string[]) => faults.filter((fault) => fault.startsWith("t-cut"));
  expect(own(judge(late, limits))).toEqual([]);
  late.actions.bookedAt = 9_250;
  expect(own(judge(late, limits))).toEqual([]);
  late.actions.bookedAt = 9_300;
  expect(own(judge(late, limits)).join()).toMatch(/3 tokens are charged of 4 that were delivered/);
});

describe("the checker finds", () => {
  const [WHOLE, CUT, REFUSED, DOCUMENT, OTHER] = [0, 1, 2, 3, 4] as const;
  const hold = ({ books }: ReturnType<typeof world>, index: number) => books.holds[index] as Hold;
  const event = ({ books }: ReturnType<typeof world>, index: number) => books.events[index] as Event;
  const cases: [string, (tampered: ReturnType<typeof world>) => void, RegExp][] = [
    ["credits from nowhere", ({ balance }) => (balance.granted += 1n), /granted 5001 is not/],
    [
      "a balance below 0",
      ({ balance }) => Object.assign(balance, { available: -1n, granted: 99n + balance.spent }),
      /below 0/,
    ],
    [
      "held credits without an open hold",
      (all) => (hold(all, OTHER).state = "released"),
      /held 100, and its open holds are 0/,
    ],
    [
      "a budget that counts a charge twice",
      ({ balance, books }) => {
        const { held, spent } = balance;
        books.counted = [{ organization_id: "org", budget_id: "bud_1", held, spent: spent + 1n }];
      },
      /the budget bud_1 has held 100 and spent/,
    ],
    ["spent credits without an event", (all) => all.books.events.splice(WHOLE, 1), /spent .* its events cost/],
    [
      "a charged hold without its event",
      (all) => all.books.events.splice(WHOLE, 1),
      /t-whole is charged and has the events $/m,
    ],
    ["an open hold with an event", (all) => (hold(all, CUT).state = "open"), /is open and has the events 0/],
    ["an event without a hold", (all) => (event(all, CUT).hold_id = "gone"), /hold gone has events and is not there/],
    ["another cost than the price", (all) => (event(all, WHOLE).cost += 1n), /was charged \d+ for tokens that cost/],
    ["another price than the stated", (all) => (event(all, CUT).output_price += 1n), /has the prices/],
    [
      "two holds of a request",
      (all) => all.books.holds.push(holdOf({ id: "again", metadata: '{"request":"t-whole"}' })),
      /t-whole: 2 holds/,
    ],
    ["an answer without a hold", (all) => all.books.holds.splice(WHOLE, 1), /t-whole: it has no hold/],
    ["a free answer", (all) => (hold(all, WHOLE).state = "released"), /a complete answer is not charged/],
    ["an answer that costs what no upstream reported", (all) => (all.whole.script.usage = null), /counted otherwise/],
    ["a client that received another usage", ({ whole }) => (whole.client.usage = undefined), /has no usage/],
    [
      "a client that received another cost",
      ({ whole }) => Object.assign(whole.client.usage ?? {}, { cost: 1 }),
      /received the cost 1/,
    ],
    ["words that were lost", ({ whole }) => whole.client.wordsAt.pop(), /9 of 10 words came/],
    ["an upstream that was asked twice", ({ whole }) => (whole.upstream.asked = 2), /asked 2 times/],
    ["a client that still waits", ({ whole }) => (whole.client.end = undefined), /still waits/],
    ["a false 402", ({ whole }) => Object.assign(whole.client, { status: 402, end: "error" }), /answered 402/],
    [
      "an error that was charged",
      ({ whole }) => Object.assign(whole.client, { status: 503, end: "error" }),
      /an error was charged/,
    ],
    ["a 503 while the store was available", ({ actions }) => (actions.storeWasUnavailable = false), /answered 503/],
    ["a cut without a kill", ({ actions }) => (actions.killedAt = undefined), /no service was killed/],
    [
      "less than was delivered",
      (all) => Object.assign(event(all, CUT), tokens(12n, 0n, 3n)),
      /3 tokens are charged of \d that were delivered/,
    ],
    [
      "more than was produced",
      (all) => Object.assign(event(all, CUT), tokens(12n, 0n, 9n)),
      /9 tokens are charged of 8/,
    ],
    [
      "an input that is not charged",
      (all) => Object.assign(event(all, CUT), tokens(0n, 0n, 8n)),
      /its input is not charged/,
    ],
    ["a renewal that was too late", (all) => (hold(all, CUT).expires_at = 12_600n), /renewed last 50 ms too long/],
    [
      "a charge for a part of a document",
      (all) => {
        hold(all, DOCUMENT).state = "charged";
        all.books.events.push(eventOf(hold(all, DOCUMENT), tokens(5n, 0n, 5n)));
      },
      /a part of a whole was charged/,
    ],
    ["a hold that is still open", (all) => (hold(all, REFUSED).state = "open"), /t-refused: its hold is open/],
    [
      "a key that is answered with an error after a complete answer",
      ({ actions }) => Object.assign(actions.repeated.get("t-whole")?.client ?? {}, { status: 409, end: "error" }),
      /answered 409 error .*after a complete answer/,
    ],
    [
      "a key that is answered with another answer",
      ({ actions }) => actions.repeated.get("t-whole")?.client.wordsAt.pop(),
      /repeated, it has 9 words/,
    ],
    [
      "a reference that granted twice",
      ({ books }) => {
        const grant = { organization_id: "org", amount: 1n, reference: "r" };
        books.grants.push({ ...grant, id: "a" }, { ...grant, id: "b" });
      },
      /granted twice/,
    ],
  ];
  test.each(cases)("%s", (_name, tamper, fault) => {
    const tampered = world();
    tamper(tampered);
    expect(judge(tampered).join("\n")).toMatch(fault);
  });

  test("a hold that returns to an earlier state, and rows that are changed or deleted", () => {
    const checker = new Checker(LIMITS);
    checker.checkBooks(world().books);
    const reopened = world();
    hold(reopened, REFUSED).state = "open";
    expect(checker.checkBooks(reopened.books).join()).toContain("went from released to open");
    const changed = world();
    event(changed, WHOLE).ending = "client_disconnected";
    expect(checker.checkBooks(changed.books).join()).toContain("event t-whole 0 was");
    const forgotten = world();
    forgotten.books.holds = forgotten.books.holds.filter(({ id }) => id !== "other");
    expect(checker.checkBooks(forgotten.books).join()).toContain("hold other went from open to undefined");
    expect(checker.checkBooks(forgotten.books, { mayForgetOpenHolds: true }).join()).not.toContain("hold other");
  });

  const CHARGED = eventOf(holdOf({ id: "other" }), tokens(12n, 0n, 4n), { ending: "recovered" });
  const laterStates: [string, Partial<Hold>, Event[], { mayForgetOpenHolds?: boolean }, string][] = [
    [
      "a renewal that goes back",
      { state: "open", output_tokens: 4n },
      [],
      {},
      "had delivered 5 tokens, and has 4 as open",
    ],
    ["an expiry that goes back", { state: "expired" }, [CHARGED], {}, "had delivered 5 tokens, and has 4 as expired"],
    ["not a crash of the store", { state: "open", output_tokens: 4n }, [], { mayForgetOpenHolds: true }, ""],
    ["not a settlement", { state: "charged" }, [{ ...CHARGED, ending: "complete" }], {}, ""],
  ];
  test.each(laterStates)("of what was delivered: %s", (_name, fields, events, options, fault) => {
    const checker = new Checker(LIMITS);
    const before = world();
    hold(before, OTHER).output_tokens = 5n;
    checker.checkBooks(before.books);
    const after = world();
    Object.assign(hold(after, OTHER), fields);
    after.books.events.push(...events);
    const found = checker.checkBooks(after.books, options).filter((one) => one.includes("had delivered"));
    expect(found.join()).toBe(fault === "" ? "" : `hold other ${fault}`);
  });
});
