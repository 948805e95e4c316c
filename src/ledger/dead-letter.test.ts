import { appendFile, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { factsOf, ORGANIZATION } from "../../test/support/open-ledger.ts";
import { spooledTransitions } from "../../test/support/spooled.ts";
import { NO_TOKENS } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import { openSqliteStore } from "../stores/sqlite/sqlite.ts";
import {
  appendLine,
  countDeadLetters,
  type DeadLetter,
  deadLetterFileOf,
  deadLettersIn,
  readDeadLetters,
  retryDeadLetter,
} from "./dead-letter.ts";

test("an incomplete line, left by a full disk or a crash, is counted and does not damage later lines", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const file = deadLetterFileOf(dataDir);
  const deadLetters = deadLettersIn({ file, clock: () => 0, log: keepLog() });
  const add = (holdId: string) => deadLetters.add({ kind: "release", facts: factsOf(holdId) }, new Error("no"));
  expect(await deadLetters.count()).toBe(0);
  await add("a");
  const whole = await readFile(file);
  await add("b");
  const both = await readFile(file);
  for (let length = whole.length + 1; length < both.length; length += 1) {
    await writeFile(file, both.subarray(0, length));
    expect(await deadLetters.count()).toBe(2);
    await add("c");
    const lines = (await readFile(file, "utf8")).trimEnd().split("\n");
    expect(lines).toHaveLength(3);
    expect([lines[0], lines[1]]).toEqual(both.toString("utf8", 0, length).split("\n"));
    expect(JSON.parse(lines[2] ?? "")).toMatchObject({ reason: "no", transition: { facts: { holdId: "c" } } });
    expect(await deadLetters.count()).toBe(3);
  }
  await rm(dataDir, { recursive: true });
});

test("a file is not read again while it is being read, or if it has not changed", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const file = deadLetterFileOf(dataDir);
  const deadLetters = deadLettersIn({ file, clock: () => 0, log: keepLog() });
  await deadLetters.addLine("a");
  await deadLetters.addLine("b");
  expect(await deadLetters.count()).toBe(2);
  const handle = await open(file, "r+");
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(size, "\n"), 0, size, 0);
  await handle.close();
  expect(await deadLetters.count()).toBe(2);
  await appendFile(file, "c\nd");
  const count = deadLetters.count();
  expect(deadLetters.count()).toBe(count);
  expect(await count).toBe(2);
  await rm(file);
  expect(await deadLetters.count()).toBe(0);
  await rm(dataDir, { recursive: true });
});

async function entriesOf(file: string): Promise<DeadLetter[]> {
  const entries: DeadLetter[] = [];
  for await (const entry of readDeadLetters(file)) entries.push(entry);
  return entries;
}

test("a service and a command that append at once lose no entry and no note of a booking", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const file = deadLetterFileOf(dataDir);
  const log = keepLog();
  const deadLetters = deadLettersIn({ file, clock: () => 0, log });
  const transitions = fc.sample(spooledTransitions, 40);
  const adding = Promise.all(transitions.map((transition, at) => deadLetters.add(transition, new Error(`${at}`))));
  const booked = new Set<string>();
  for (let rounds = 0; rounds < 20; rounds += 1) {
    const [first] = await entriesOf(file);
    if (first === undefined || first.transition === null) continue;
    await appendLine(file, { at: "now", booked: first.id });
    booked.add(first.id);
  }
  await adding;
  const rest = await entriesOf(file);
  expect(booked.size).toBeGreaterThan(0);
  expect(rest.length + booked.size).toBe(transitions.length);
  expect(rest.filter(({ id, transition }) => booked.has(id) || transition === null)).toEqual([]);
  expect(rest.map(({ reason, transition }) => [transition, Number(reason)])).toEqual(
    rest.map(({ reason }) => [transitions[Number(reason)], Number(reason)]),
  );
  expect([await deadLetters.count(), await countDeadLetters(file)]).toEqual([rest.length, rest.length]);
  await rm(dataDir, { recursive: true });
});

test("a dead letter is booked again once, also if the note of its booking was lost", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const { books, accounts, close } = await openSqliteStore({ dataDir, role: "command" });
  const options = { file: deadLetterFileOf(dataDir), clock: () => 0 };
  const deadLetters = deadLettersIn({ ...options, log: keepLog() });
  const settlement = (holdId: string, input: number) => {
    const charge = { tokens: { ...NO_TOKENS, input }, basis: "reported", end: "complete" } as const;
    return { kind: "settle" as const, facts: factsOf(holdId), ...charge };
  };
  await deadLetters.add(settlement("a", 7), new Error("first"));
  await deadLetters.add({ kind: "release", facts: factsOf("b") }, new Error("second"));
  await deadLetters.add(settlement("c", -1), new Error("third"));
  await deadLetters.add(settlement("d", 5), new Error("fourth"));
  await deadLetters.addLine("damaged");
  const retryAll = async (apply = books.apply) => {
    const outcomes = [];
    for (const entry of await entriesOf(options.file)) outcomes.push(await retryDeadLetter({ apply }, options, entry));
    return outcomes;
  };
  const down = async () => Promise.reject(new StoreUnavailableError("down"));
  await expect(retryAll(down)).rejects.toThrow("down");
  const unknown = { outcome: "refused", reason: "the store answered unknown_organization" };
  expect((await retryAll()).slice(0, 2)).toEqual([unknown, unknown]);
  expect(await deadLetters.count()).toBe(5);

  await accounts.insertOrganization({ id: ORGANIZATION, name: "Late", kind: "standard", createdAtMs: 1 });
  const grant = { grantId: "g", amount: 10n, effectiveAtMs: null, expiresAtMs: null, priority: 1, reference: null };
  await books.apply("durable", [{ kind: "grant", organizationId: ORGANIZATION, ...grant }]);
  const before = await readFile(options.file);
  const expected = [
    { outcome: "booked", charged: 7n, shortfall: 0n },
    { outcome: "booked", charged: 0n, shortfall: 0n },
    { outcome: "refused", reason: expect.stringMatching(/tokens|count/i) },
    { outcome: "booked", charged: 3n, shortfall: 2n },
    { outcome: "refused", reason: "the line was damaged" },
  ];
  expect(await retryAll()).toEqual(expected);
  expect([await deadLetters.count(), await countDeadLetters(options.file)]).toEqual([2, 2]);
  await writeFile(options.file, before);
  expect(await retryAll()).toEqual(expected);
  expect(await books.balance(ORGANIZATION)).toMatchObject({ granted: 10n, available: 0n, spent: 10n });
  expect((await books.verify(ORGANIZATION)).violations).toEqual([]);
  expect(await deadLetters.count()).toBe(2);
  await close();
  await rm(dataDir, { recursive: true });
});
