import { afterAll, beforeAll, expect, test } from "vitest";
import { runOverspend } from "../overspend/main.ts";
import { type RunningService, startService } from "./support/service.ts";

let service: RunningService;

beforeAll(async () => {
  service = await startService();
});

afterAll(async () => {
  await service?.end();
});

test("A service without configuration is measured with its sandbox models, and what they cannot do is listed.", async () => {
  const { token } = await service.tollgate<{ token: string }>("admin", "token");
  let printed = "";
  const output = { log: (text: string) => (printed += text), error: (text: string) => (printed += text) };
  const words = [
    "--target",
    service.url,
    "--adapter",
    "tollgate",
    "--admin-token",
    token,
    "--requests",
    "10",
    "--json",
  ];
  const code = await runOverspend(words, output as unknown as Console);
  const report = JSON.parse(printed);
  expect(report).toMatchObject({ overspent: 0, double: 0, lost: 0, findings: [], answers_from: "sandbox" });
  expect(code).toBe(0);
  const outcomes = report.trials.map(({ name, outcome }: { name: string; outcome: string }) => [name, outcome]);
  expect(outcomes).toEqual([
    ...["concurrency", "clients-leave", "cut-answers", "lying-upstreams", "resets", "retries"].map((name) => [
      name,
      "run",
    ]),
    ["kill", "not run"],
  ]);
  const lies = report.trials.find(({ name }: { name: string }) => name === "lying-upstreams");
  expect(lies.complete).toBe(2);
  expect(lies.not_run).toHaveLength(14);
  expect(lies.not_run[0].reason).toBe("no sandbox model does this");
  expect(report.charged).toBeGreaterThan(0);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});
