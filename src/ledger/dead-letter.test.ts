import { appendFile, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { factsOf } from "../../test/support/open-ledger.ts";
import { DeadLetters, deadLetterFileOf } from "./dead-letter.ts";

test("an incomplete line, left by a full disk or a crash, is counted and does not damage later lines", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const file = deadLetterFileOf(dataDir);
  const deadLetters = new DeadLetters({ file, clock: () => 0, log: keepLog() });
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

test("counted entries are not read again", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-dead-letters-"));
  const file = deadLetterFileOf(dataDir);
  const deadLetters = new DeadLetters({ file, clock: () => 0, log: keepLog() });
  await deadLetters.addLine("a");
  await deadLetters.addLine("b");
  expect(await deadLetters.count()).toBe(2);
  const handle = await open(file, "r+");
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(size, "\n"), 0, size, 0);
  await handle.close();
  expect(await deadLetters.count()).toBe(2);
  await appendFile(file, "c\nd");
  expect(await Promise.all([deadLetters.count(), deadLetters.count()])).toEqual([4, 4]);
  await rm(file);
  expect(await deadLetters.count()).toBe(0);
  await rm(dataDir, { recursive: true });
});
