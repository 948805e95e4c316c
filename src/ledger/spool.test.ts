import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { v7 as uuid } from "uuid";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { releaseOf } from "../../test/support/spooled.ts";
import { takeLock } from "../stores/sqlite/directory.ts";
import { Spool } from "./spool.ts";
import { type SpooledTransition, SpoolFile } from "./spool-file.ts";

let directory: string;
const children: ChildProcess[] = [];
const spools: Spool[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "tollgate-spools-"));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const spool of spools.splice(0)) await spool.stop();
  await rm(directory, { recursive: true });
});

/** Runs a module in a process of its own, through a launcher if one is given. Returns the lines that it prints. */
function start(body: string, launcher: string[] = []): { child: ChildProcess; lines: AsyncIterator<string> } {
  const source = `
    import { SpoolFile, toSpoolRecord } from ${JSON.stringify(new URL("./spool-file.ts", import.meta.url).href)};
    import { Spool } from ${JSON.stringify(new URL("./spool.ts", import.meta.url).href)};
    import { takeLock } from ${JSON.stringify(new URL("../stores/sqlite/directory.ts", import.meta.url).href)};
    const directory = ${JSON.stringify(directory)};
    const { factsOf } = await import(${JSON.stringify(new URL("../../test/support/open-ledger.ts", import.meta.url).href)});
    const release = (holdId) => ({ kind: "release", facts: factsOf(holdId) });
    const say = (line) => process.stdout.write(line + "\\n");
    ${body}`;
  const node = [process.execPath, "--input-type=module", "-e", source];
  const [command = "", ...words] = [...launcher, ...node];
  const child = spawn(command, words, { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
}

const OPEN = `
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const clock = () => Date.now();
  const spool = await Spool.open({ directory, takeLock, name: "child", clock, random: () => 0, log });`;

async function openSpool(name: string = uuid()) {
  const log = keepLog();
  const booked: SpooledTransition[] = [];
  const kept: string[] = [];
  const spool = await Spool.open({ directory, takeLock, name, clock: () => Date.now(), random: () => 0, log });
  spools.push(spool);
  const start = () =>
    spool.start({
      book: async (transition) => void booked.push(transition),
      storeDamaged: async (line) => void kept.push(line),
    });
  return { spool, start, booked, kept, log };
}

describe("a process that is killed", () => {
  test("leaves every confirmed record to the process that takes its spool over, and not before it has ended", async () => {
    const { child, lines } = start(`${OPEN}
      for (let index = 0; ; index += 8) {
        await Promise.all(Array.from({ length: 8 }, (_, of) => spool.append(release("hold_" + (index + of)))));
        say(String(index + 8));
      }`);
    const { spool, start: book, booked, log } = await openSpool();
    book();
    let confirmed = 0;
    while (confirmed < 400) {
      confirmed = Number((await lines.next()).value);
      if (confirmed % 80 === 0) await spool.replay();
    }
    expect(booked).toEqual([]);
    child.kill("SIGKILL");
    await once(child, "exit");
    for (let line = await lines.next(); !line.done; line = await lines.next()) confirmed = Number(line.value);
    expect(await spool.replay()).toBe(true);
    expect(booked.length).toBeGreaterThanOrEqual(confirmed);
    expect(booked).toEqual(Array.from({ length: booked.length }, (_, index) => releaseOf(`hold_${index}`)));
    // The file shows that its process has ended for as long as its holds may be open.
    expect(spool.endedOwners).toEqual(["child"]);
    const leftOf = async () => (await readdir(directory)).filter((name) => name.startsWith("child"));
    expect(await leftOf()).toContain("child.jsonl");
    await spool.forgetOwner("child");
    expect(spool.endedOwners).toEqual([]);
    expect(await leftOf()).toEqual([]);
    expect(log.messages("warn")).toEqual([expect.stringContaining("taken over")]);
  });

  test("has its spool taken over by only one of two processes", async () => {
    const { child, lines } = start(`${OPEN}
      await spool.append(release("hold_0"));
      say("kept");
      // A file that nothing references is closed, with an error, when garbage is collected.
      setInterval(() => spool.entries, 1000);`);
    await lines.next();
    const found = [await openSpool(), await openSpool()];
    for (const { start: book } of found) book();
    child.kill("SIGKILL");
    await once(child, "exit");
    await expect
      .poll(async () => {
        await Promise.all(found.map(({ spool }) => spool.replay()));
        return found.flatMap(({ booked }) => booked);
      })
      .toEqual([releaseOf("hold_0")]);
  });
});

describe.skipIf(process.platform === "win32")("a spool on a full disk", () => {
  test("refuses records that do not fit, keeps confirmed ones, and accepts smaller ones", async () => {
    // Blocks are of 512 or of 1,024 bytes, as the shell has it.
    const { child, lines } = start(
      `const file = await SpoolFile.create(directory + "/full.jsonl");
      let taken = 0;
      try {
        for (;;) {
          await file.append(toSpoolRecord(release("hold_" + taken + "x".repeat(2_000))));
          taken += 1;
        }
      } catch (error) {
        say(error.code);
      }
      const group = await Promise.allSettled(Array.from({ length: 50 }, () => file.append(toSpoolRecord(release("y".repeat(500))))));
      say(String(group.filter(({ status }) => status === "fulfilled").length));
      await file.append(toSpoolRecord(release("small")));
      say(String(taken));`,
      ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh"],
    );
    const said = [];
    for (let line = await lines.next(); !line.done; line = await lines.next()) said.push(line.value);
    if (child.exitCode === null) await once(child, "exit");
    expect(said.slice(0, 2)).toEqual(["EFBIG", "0"]);
    const taken = Number(said[2]);
    expect(taken).toBeGreaterThan(5);
    const file = await SpoolFile.open(join(directory, "full.jsonl"));
    const pages = [];
    for await (const page of file.pages()) pages.push(page);
    expect(pages).toHaveLength(1);
    expect(pages[0]?.transitions).toEqual([
      ...Array.from({ length: taken }, (_, index) => releaseOf(`hold_${index}${"x".repeat(2_000)}`)),
      releaseOf("small"),
    ]);
    expect(pages[0]).toMatchObject({ damaged: [], isIncomplete: false });
    await file.close();
  });
});

/** Runs a command with the directory on a 24 MiB disk that only this command sees. */
const onSmallDisk = (): string[] => {
  const script = 'mount -t tmpfs -o size=24m tmpfs "$1" && shift && exec "$@"';
  return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", directory];
};
function hasSmallDisks(): boolean {
  const { status } = spawnSync("unshare", [
    "--user",
    "--map-root-user",
    "--mount",
    "mount",
    "-t",
    "tmpfs",
    "tmpfs",
    "/mnt",
  ]);
  if (status !== 0)
    process.stderr.write(
      "The tests of a spool on a full disk were skipped: this machine does not allow mounting one.\n",
    );
  return status === 0;
}

describe.skipIf(!hasSmallDisks())("a spool on a disk that others fill", () => {
  test("keeps its allocated space, also after a record that does not fit", async () => {
    const { lines } = start(
      `import { appendFileSync } from "node:fs";
      const path = directory + "/spool.jsonl";
      const fill = () => {
        try {
          for (;;) appendFileSync(directory + "/filler", "x".repeat(4096));
        } catch (error) {
          return error.code;
        }
      };
      const file = await SpoolFile.create(path);
      say(fill());
      await file.append(toSpoolRecord(release("a")));
      say(await file.append(toSpoolRecord(release("z".repeat(18_000_000)))).catch((error) => error.code));
      say(fill());
      for (let index = 0; index < 1000; index += 1) await file.append(toSpoolRecord(release("b" + index + "y".repeat(2_000))));
      const next = await SpoolFile.open(path);
      const found = [];
      let noise = 0;
      for await (const page of next.pages()) {
        found.push(...page.transitions.map(({ facts: { holdId } }) => holdId.slice(0, 4).replaceAll("y", "")));
        noise += page.damaged.length + (page.isIncomplete ? 1 : 0);
      }
      say(found.length + " " + found[0] + " " + found.at(-1) + " " + noise);
      await Promise.all([file.close(), next.close()]);`,
      onSmallDisk(),
    );
    const said = [];
    for (let line = await lines.next(); !line.done; line = await lines.next()) said.push(line.value);
    expect(said).toEqual(["ENOSPC", "ENOSPC", "ENOSPC", "1001 a b999 0"]);
  });

  test("reserves its space later if the disk was full at the start, and says so", async () => {
    const { lines } = start(
      `import { appendFileSync, rmSync, statSync } from "node:fs";
      import { setTimeout as sleep } from "node:timers/promises";
      const fill = () => {
        try {
          for (;;) appendFileSync(directory + "/filler", "x".repeat(4096));
        } catch {}
      };
      fill();
      const messages = [];
      const note = (fields, message) => messages.push(message);
      const log = { debug() {}, info: note, warn: note, error: note };
      const spool = await Spool.open({ directory, takeLock, name: "child", clock: Date.now, random: () => 0, log });
      say(messages.join());
      say(String(await spool.append(release("early")).then(() => true, () => false)));
      rmSync(directory + "/filler");
      await spool.append(release("between"));
      while (messages.length < 3) await sleep(50);
      say(messages.at(-1));
      fill();
      for (let index = 0; index < 1000; index += 1) await spool.append(release("b" + index + "y".repeat(2_000)));
      const next = await SpoolFile.open(directory + "/child.jsonl");
      say(next.entries + " " + spool.entries);
      process.exit(0);`,
      onSmallDisk(),
    );
    const said = [];
    for (let line = await lines.next(); !line.done; line = await lines.next()) said.push(line.value);
    expect(said).toEqual([
      "the disk is too full to reserve the spool's space: if it is full when running answers end, they fail",
      "false",
      "the spool's space is reserved",
      "1001 1001",
    ]);
  });

  test("keeps half of its space from an organization with long records, so that others find room", async () => {
    const { lines } = start(
      `${OPEN}
      import { appendFileSync } from "node:fs";
      const ofOther = () => ({ kind: "release", facts: { ...factsOf("other"), organizationId: "org_2" } });
      const long = () => spool.append(release("x".repeat(1_000_000))).then(() => true, () => false);
      try {
        for (;;) appendFileSync(directory + "/filler", "x".repeat(4096));
      } catch {}
      let taken = 0;
      while (await long()) taken += 1;
      const [isLongTaken] = await Promise.all([long(), spool.append(ofOther())]);
      say(taken + " " + isLongTaken + " " + spool.entries);
      process.exit(0);`,
      onSmallDisk(),
    );
    expect((await lines.next()).value).toBe("8 false 9");
  });
});

test("a damaged line of a spool is stored separately, and the records around it are booked", async () => {
  const { spool: left } = await openSpool("left");
  for (const id of ["a", "b", "c"]) await left.append(releaseOf(id));
  await left.stop();
  const path = join(directory, "left.jsonl");
  await writeFile(path, (await readFile(path, "utf8")).replace('"b"', '"X"'));
  const { spool, start: book, booked, kept } = await openSpool();
  book();
  expect(await spool.replay()).toBe(true);
  expect(booked).toEqual([releaseOf("a"), releaseOf("c")]);
  expect(kept).toEqual([expect.stringContaining('"holdId":"X"')]);
});
