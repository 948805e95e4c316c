import { mkdtemp, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { releaseOf, spooledTransitions } from "../../test/support/spooled.ts";
import { fromRecord, type SpooledTransition, SpoolFile, type SpoolPage, toSpoolRecord } from "./spool-file.ts";

let directory: string;
let path: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tollgate-spool-"));
  path = join(directory, "a.jsonl");
});
afterEach(() => rm(directory, { recursive: true }));

/** Reads the first page, and does not pass it. */
async function firstPage(file: SpoolFile): Promise<SpoolPage | undefined> {
  for await (const page of file.pages()) return page;
  return undefined;
}

const sizeOf = async () => (await stat(path)).size;

async function readAll(file: SpoolFile): Promise<SpoolPage> {
  const all: SpoolPage = { transitions: [], damaged: [], isIncomplete: false, byteLength: 0 };
  for await (const page of file.pages()) {
    all.transitions.push(...page.transitions);
    all.damaged.push(...page.damaged);
    all.isIncomplete ||= page.isIncomplete;
  }
  return all;
}

/** Returns the contents that the next process finds in a file of these bytes. */
async function found(bytes: Buffer): Promise<SpoolPage & { entries: number }> {
  await writeFile(path, bytes);
  const file = await SpoolFile.open(path);
  const { entries } = file;
  const all = await readAll(file);
  await file.close();
  return { ...all, entries };
}

test("a record is parsed to the transition that was written", () => {
  fc.assert(
    fc.property(spooledTransitions, (transition) => {
      const record = toSpoolRecord(transition);
      expect(record.filter((byte) => byte === 0x0a)).toHaveLength(2);
      expect(fromRecord(record.subarray(1, -1))).toEqual(transition);
    }),
  );
});

const files = fc
  .array(spooledTransitions, { minLength: 1, maxLength: 6 })
  .map((transitions) => ({ transitions, records: transitions.map(toSpoolRecord) }));
const endsOf = (records: Buffer[]) => records.map((_, index) => Buffer.concat(records.slice(0, index + 1)).length);

describe("a damaged file", () => {
  test("that is truncated anywhere contains every complete record and nothing else", async () => {
    await fc.assert(
      fc.asyncProperty(files, fc.nat(), async ({ transitions, records }, at) => {
        const whole = Buffer.concat(records);
        const length = at % (whole.length + 1);
        // The end of its line is all that a record may lack.
        const kept = endsOf(records).filter((end) => end - 1 <= length).length;
        const read = await found(whole.subarray(0, length));
        expect(read.transitions).toEqual(transitions.slice(0, kept));
        expect([read.damaged, read.entries]).toEqual([[], kept]);
      }),
      { numRuns: 300 },
    );
  });

  test("with garbage or an incomplete record at its end contains all complete records", async () => {
    await fc.assert(
      fc.asyncProperty(files, fc.uint8Array({ maxLength: 64 }), async ({ transitions, records }, rest) => {
        const read = await found(Buffer.concat([...records, rest]));
        expect(read.transitions).toEqual(transitions);
      }),
      { numRuns: 200 },
    );
  });

  test("with an overwritten range loses and reports only the records in that range", async () => {
    await fc.assert(
      fc.asyncProperty(files, fc.nat(), fc.uint8Array({ minLength: 1, maxLength: 40 }), async (file, at, garbage) => {
        const bytes = Buffer.concat(file.records);
        const start = at % bytes.length;
        const end = Math.min(bytes.length, start + garbage.length);
        bytes.set(garbage.subarray(0, end - start), start);
        const ends = endsOf(file.records);
        const isUntouched = (_: SpooledTransition, index: number) =>
          (ends[index - 1] ?? 0) >= end || (ends[index] ?? 0) <= start;
        const untouched = file.transitions.filter(isUntouched);
        const read = await found(bytes);
        expect(read.transitions).toEqual(expect.arrayContaining(untouched));
        const isGone = read.transitions.length < file.transitions.length;
        if (isGone)
          expect(read.damaged.length > 0 || read.isIncomplete || hitsBreaksAlone(file.records, start, end)).toBe(true);
        for (const transition of read.transitions) expect(file.transitions).toContainEqual(transition);
      }),
      { numRuns: 300 },
    );
  });

  test("with zeros at its end, left by a power failure, contains only the records", async () => {
    const read = await found(Buffer.concat([toSpoolRecord(releaseOf("a")), Buffer.alloc(5_000)]));
    expect(read).toMatchObject({ transitions: [releaseOf("a")], damaged: [], isIncomplete: false, entries: 1 });
  });
});

/** Returns true if a record could vanish without a trace: only if all of it was overwritten with line breaks. */
function hitsBreaksAlone(records: Buffer[], start: number, end: number): boolean {
  return records.some((record) => record.length <= end - start);
}

describe("a file in use", () => {
  test("returns records in their order, page by page, and is emptied when all are passed", async () => {
    const file = await SpoolFile.create(path);
    const names = Array.from({ length: 30_000 }, (_, index) => `hold_${index}`);
    await Promise.all(names.map((name) => file.append(toSpoolRecord(releaseOf(name)))));
    expect(file.entries).toBe(names.length);
    const first = await firstPage(file);
    expect(first?.transitions.length).toBeLessThan(names.length);
    expect(await firstPage(file)).toEqual(first);
    expect(file.entries).toBe(names.length);
    const all = await readAll(file);
    expect(all.transitions).toEqual(names.map(releaseOf));
    await file.append(toSpoolRecord(releaseOf("later")));
    expect(file.entries).toBe(1);
    await file.close();
    expect(await sizeOf()).toBe(toSpoolRecord(releaseOf("later")).length);
    const next = await SpoolFile.open(path);
    expect((await readAll(next)).transitions).toEqual([releaseOf("later")]);
    await next.close();
  });

  test("loses no record that is appended while it is being emptied", async () => {
    const file = await SpoolFile.create(path);
    const read: string[] = [];
    const names = Array.from({ length: 500 }, (_, index) => `hold_${index}`);
    const reading = (async () => {
      while (read.length < names.length) {
        const { transitions } = await readAll(file);
        read.push(...transitions.map((transition) => transition.facts.holdId));
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (const name of names) await file.append(toSpoolRecord(releaseOf(name)));
    await reading;
    expect(read).toEqual(names);
    expect(file.entries).toBe(0);
    await file.close();
    expect(await sizeOf()).toBe(0);
  });

  test("reads a record that is larger than a page", async () => {
    const file = await SpoolFile.create(path);
    const large = "x".repeat(5_000_000);
    await Promise.all([large, "b"].map((name) => file.append(toSpoolRecord(releaseOf(name)))));
    expect((await readAll(file)).transitions).toEqual([releaseOf(large), releaseOf("b")]);
    await file.remove();
    await expect(sizeOf()).rejects.toThrow("ENOENT");
  });

  test("that was removed or replaced takes no more records, until it is back", async () => {
    const file = await SpoolFile.create(path);
    await rename(path, `${path}.away`);
    await expect(file.append(toSpoolRecord(releaseOf("a")))).rejects.toThrow("ENOENT");
    await writeFile(path, "another file");
    await expect(file.append(toSpoolRecord(releaseOf("b")))).rejects.toThrow(`${path} was replaced`);
    await rename(`${path}.away`, path);
    await file.append(toSpoolRecord(releaseOf("c")));
    expect((await readAll(file)).transitions).toEqual([releaseOf("c")]);
    await file.close();
  });

  test("allocates its disk space at the start, keeps it when it is emptied, and frees it when it is closed", async () => {
    const file = await SpoolFile.create(path);
    const reserved = await stat(path);
    expect(reserved.blocks * 512).toBeGreaterThanOrEqual(reserved.size);
    expect(reserved.size).toBeGreaterThan(10_000 * toSpoolRecord(releaseOf("hold")).length);
    await file.append(toSpoolRecord(releaseOf("a")));
    await readAll(file);
    await file.append(toSpoolRecord(releaseOf("b")));
    expect(await sizeOf()).toBe(reserved.size);
    const killed = await SpoolFile.open(path);
    expect(await readAll(killed)).toMatchObject({ transitions: [releaseOf("b")], damaged: [], isIncomplete: false });
    await killed.close();
    await file.close();
  });

  test("reports that something else has truncated it", async () => {
    const file = await SpoolFile.create(path);
    await file.append(toSpoolRecord(releaseOf("a")));
    await writeFile(path, "");
    await expect(readAll(file)).rejects.toThrow("was truncated");
    await file.close();
  });

  test("never replaces an existing file", async () => {
    await writeFile(path, toSpoolRecord(releaseOf("a")));
    await expect(SpoolFile.create(path)).rejects.toThrow("EEXIST");
  });
});
