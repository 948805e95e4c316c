import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { runCommand } from "./support/command-line.ts";
import { until } from "./support/open-ledger.ts";
import { loadHost, makeOrganization, startService } from "./support/service.ts";

/** Counts what keeps the event loop of this process running, and the listeners of the process. */
function activeResources(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) counts[name] = (counts[name] ?? 0) + 1;
  for (const event of process.eventNames()) counts[`on ${String(event)}`] = process.listenerCount(event);
  return counts;
}

test("a hosted service leaves nothing running when it ends", { timeout: 180_000 }, async () => {
  // Modules that are loaded once stay.
  const first = await startService();
  await makeOrganization(first, "1");
  await first.end();
  const before = activeResources();
  const service = await startService();
  await makeOrganization(service, "1");
  expect(activeResources()).not.toEqual(before);
  await service.end();
  await until(() => Object.entries(activeResources()).every(([name, count]) => count <= (before[name] ?? 0)));
});

test("a command in a missing directory leaves the process unchanged, and the next command runs", {
  timeout: 180_000,
}, async () => {
  const { runCommand: run } = await loadHost();
  const own = { cwd: process.cwd(), env: { ...process.env } };
  const env = { NO_COLOR: "1", UNSET: undefined };
  await expect(run(["org", "list"], { cwd: "/does/not/exist", env })).rejects.toThrow("ENOENT");
  expect({ cwd: process.cwd(), env: process.env }).toEqual(own);
  expect(await run(["--version"], { cwd: tmpdir(), env })).toMatchObject({ code: 0, stderr: "" });
  expect({ cwd: process.cwd(), env: process.env }).toEqual(own);
});

test("a service is not run as a command", async () => {
  await expect(runCommand(["serve"], tmpdir())).rejects.toThrow("in a process of its own");
});
