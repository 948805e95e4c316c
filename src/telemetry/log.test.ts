import { expect, test } from "vitest";
import { createLog } from "./log.ts";

function logged(level: Parameters<typeof createLog>[0], write: (log: ReturnType<typeof createLog>) => void) {
  const lines: string[] = [];
  write(createLog(level, (line) => lines.push(line)));
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

test("a line is JSON with its time, level, fields and message", () => {
  const [line] = logged("info", (log) => log.info({ holdId: "h" }, "hold expired"));
  expect(line).toEqual({ level: "info", time: expect.stringMatching(/^\d{4}-.*Z$/), holdId: "h", msg: "hold expired" });
});

test("what is below the level is not written", () => {
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

test("an error is told with its causes, and with nothing that hangs on it", () => {
  const cause = Object.assign(new Error("connection refused"), { code: "ECONNREFUSED", address: "10.0.0.1" });
  const [line] = logged("info", (log) => log.error({ err: new Error("upstream failed", { cause }) }, "m"));
  expect(line?.err).toEqual({
    name: "Error",
    message: "upstream failed",
    stack: expect.any(String),
    cause: { name: "Error", message: "connection refused", code: "ECONNREFUSED", stack: expect.any(String) },
  });
});
