import { expect, test, vi } from "vitest";
import { createLog, lineWriter } from "./logger.ts";

function logged(level: Parameters<typeof createLog>[0], write: (log: ReturnType<typeof createLog>) => void) {
  const lines: string[] = [];
  write(createLog(level, (line) => lines.push(line)));
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

test("a line is JSON with its time, level, fields and message", () => {
  const [line] = logged("info", (log) => log.info({ holdId: "h" }, "hold expired"));
  expect(line).toEqual({ level: "info", time: expect.stringMatching(/^\d{4}-.*Z$/), holdId: "h", msg: "hold expired" });
});

test("lines below the level are not written", () => {
  const lines = logged("warn", (log) => {
    log.debug({}, "a");
    log.info({}, "b");
    log.warn({}, "c");
    log.error({}, "d");
  });
  expect(lines.map((line) => line.msg)).toEqual(["c", "d"]);
  expect(logged("silent", (log) => log.error({}, "e"))).toEqual([]);
});

test.each([
  { authorization: "Bearer SECRET" },
  { apiKey: "SECRET" },
  { token: "SECRET" },
  { messages: [{ role: "user", content: "SECRET" }] },
  { request: { headers: { authorization: "SECRET" }, messages: ["SECRET"] } },
  { providers: { one: { apiKey: "SECRET" } } },
  { text: "sent Bearer SECRET to the upstream" },
  { text: "the token sk-tg-abcdefSECRET was refused" },
  { text: "the admin token tg-admin-abcdefSECRET was refused" },
  { err: Object.assign(new Error("broken", { cause: new Error("Bearer SECRET") }), { headers: "SECRET" }) },
])("no secret is written: %j", (fields) => {
  expect(JSON.stringify(logged("debug", (log) => log.error(fields, "m")))).not.toContain("SECRET");
});

const cause = Object.assign(new Error("connection refused"), { code: "ECONNREFUSED", address: "10.0.0.1" });

test("a known failure is logged with its causes, without a stack and without other properties", () => {
  const [line] = logged("info", (log) => log.error({ err: new Error("upstream failed", { cause }) }, "m"));
  expect(line?.err).toEqual({
    name: "Error",
    message: "upstream failed",
    cause: { name: "Error", message: "connection refused", code: "ECONNREFUSED" },
  });
});

test("a cause that is no error is left out: it may hold anything", () => {
  const err = new Error("unexpected claim", { cause: { claims: { email: "SECRET" } } });
  expect(logged("info", (log) => log.error({ err }, "m"))[0]?.err).toEqual({
    name: "Error",
    message: "unexpected claim",
  });
});

test("a defect is logged with its code positions, without any content of the request", () => {
  const quoting = new Error("broken\n    at SECRET (file:///x.ts:1:2)");
  const [line] = logged("info", (log) => log.error({ defect: quoting }, "m"));
  const { stack } = (line?.defect ?? {}) as { stack: string[] };
  expect(stack[0]).toMatch(/^at .*logger\.test\.ts:\d+:\d+/);
  expect(stack.join()).not.toContain("SECRET");
  let thrown: unknown;
  try {
    JSON.parse('{"prompt": SECRET}');
  } catch (error) {
    thrown = error;
  }
  expect(JSON.stringify(logged("info", (log) => log.error({ defect: thrown }, "m")))).not.toContain("SECRET");
});

test("the first 20 equal warnings or errors in a minute are written, and the rest is counted", () => {
  vi.useFakeTimers();
  const lines: string[] = [];
  const log = createLog("info", (line) => lines.push(line));
  for (let round = 0; round < 1_000; round += 1) log.warn({ round }, "it failed");
  log.error({}, "something else");
  expect(lines).toHaveLength(21);
  vi.advanceTimersByTime(60_000);
  expect(lines.slice(21).map((line) => JSON.parse(line))).toMatchObject([
    { level: "warn", repeated: 980, seconds: 60, msg: "it failed" },
  ]);
  log.warn({}, "it failed");
  expect(lines).toHaveLength(23);
  vi.advanceTimersByTime(60_000);
  expect(lines).toHaveLength(23);
  vi.useRealTimers();
});

test("lines that a full disk cuts or drops are counted in the next line that it takes", () => {
  let room = 30;
  let file = "";
  const write = lineWriter((bytes) => {
    if (room === 0) throw Object.assign(new Error("full"), { code: "ENOSPC" });
    const taken = bytes.subarray(0, room);
    room -= taken.length;
    file += Buffer.from(taken).toString();
    return taken.length;
  });
  write('{"msg":"one"}\n');
  write('{"msg":"two"}\n{"msg":"three"}\n{"msg":"four"}\n');
  write('{"msg":"five"}\n');
  const torn = '{"msg":"one"}\n{"msg":"two"}\n{"';
  expect(file).toBe(torn);
  // The count fits only in part, so that it is not written yet.
  room = 20;
  write('{"msg":"six"}\n');
  room = 10_000;
  write('{"msg":"seven"}\n');
  write('{"msg":"eight"}\n');
  const lines = file.slice(torn.length).split("\n");
  expect(lines.map((line) => (line.endsWith("}") ? JSON.parse(line) : line))).toEqual([
    "",
    expect.stringMatching(/^.{19}$/),
    { level: "warn", time: expect.any(String), lines: 4, msg: "log lines were lost: they could not be written" },
    { msg: "seven" },
    { msg: "eight" },
    "",
  ]);
});
