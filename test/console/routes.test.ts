import { rm } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, signIn, visit } from "../support/console.ts";
import { onOneDay } from "../support/patience.ts";
import {
  makeDirectory,
  makeOrganization,
  type RunningService,
  send,
  startProcess,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

describe.skipIf(!hasBrowser)("the operator", () => {
  let browser: Browser;
  let upstream: Upstream;
  let service: RunningService;

  beforeAll(async () => {
    upstream = await startUpstream();
    upstream.behave("vendor/m", ({ response }) => sendJson(response, 429, {}, { "retry-after": "3600" }));
    const model = { id: "m", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "vendor/m" }] };
    const config = { providers: [upstream.provider], models: [model] };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await upstream?.close();
  });

  test("The operator resumes a route that is rate limited.", async () => {
    const { token } = await makeOrganization(service, "10");
    const ask = () =>
      send(service, "/v1/chat/completions", token, { model: "m", messages: [{ role: "user", content: "a" }] });
    for (let count = 0; count < 2; count += 1) expect((await ask()).status).toBe(503);
    expect(upstream.requests).toHaveLength(1);
    const { page, pageErrors } = await visit(browser, service);
    await signIn(page, await adminTokenOf(service));
    await page.goto("/models/m");
    const route = page.getByRole("dialog").getByRole("listitem").filter({ hasText: "up/vendor/m" });
    for (const calls of [2, 3]) {
      await route.getByText("Rate limited", { exact: true }).waitFor();
      await route.getByRole("button", { name: "Resume up/vendor/m" }).click();
      await route.getByText("Failing", { exact: true }).waitFor();
      expect(await route.getByRole("button").count()).toBe(0);
      expect((await ask()).status).toBe(503);
      expect(upstream.requests).toHaveLength(calls);
    }
    expect(pageErrors).toEqual([]);
  });

  test("The operator sees the latency of a model's answers by day, on all routes or on one.", async () => {
    const dataDir = await makeDirectory();
    const route = (model: string) => ({ provider: "up", model });
    const model = { id: "timed", price: { input: 1, output: 1 }, routes: [route("fast"), route("slow")] };
    const config = { providers: [upstream.provider], models: [model] };
    const shift = "const now = Date.now; Date.now = () => now() - 2 * 86_400_000;";
    const environment = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(shift)}` };
    const past = await startProcess({ dataDir, config, environment });
    const { token } = await makeOrganization(past, "10");
    const ask = () =>
      send(past, "/v1/chat/completions", token, { model: "timed", messages: [{ role: "user", content: "a" }] });
    const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
    const after = (ms: number): Behaviour => {
      return async (request) => {
        await wait(ms);
        await answering({ words: ["a"], usage })(request);
      };
    };
    upstream.behave("fast", after(20));
    await onOneDay();
    const startedAtMs = performance.now();
    expect((await ask()).status).toBe(200);
    upstream.behave("slow", after(100 + 2 * (performance.now() - startedAtMs)));
    upstream.behave("fast", ({ response }) => sendJson(response, 500, {}));
    expect((await ask()).status).toBe(200);
    await past.end();
    const present = await startService({ dataDir, config });
    const { page, pageErrors } = await visit(browser, present);
    await signIn(page, await adminTokenOf(present));
    await page.goto("/models/timed");
    const measured = async (title: string) => {
      const column = page.getByRole("group", { name: title }).locator("[aria-label*=p95]");
      const label = (await column.getAttribute("aria-label")) ?? "";
      return label.replace(/^.*: /, "");
    };
    const [first, duration] = ["Time to first token", "Duration of complete answers"];
    const choice = page.getByLabel("Route", { exact: true });
    await choice.waitFor();
    const all = await measured(duration);
    await choice.selectOption("up/slow");
    await eventually(() => measured(duration)).not.toBe(all);
    const slow = await measured(duration);
    await choice.selectOption("up/fast");
    await eventually(() => measured(duration)).not.toBe(slow);
    const fast = await measured(duration);
    expect(slow).toMatch(/^Median (.*), p95 \1$/);
    expect(all).toBe(`${fast.split(",")[0]},${slow.split(",")[1]}`);
    expect(await measured(first)).toMatch(/^Median .*, p95 /);
    await page.getByRole("group", { name: duration }).locator("[aria-label*=p95]").click();
    await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
    expect(new URL(page.url()).search).toContain("route=up%2Ffast");
    expect(pageErrors).toEqual([]);
    await present.end();
    await rm(dataDir, { recursive: true, force: true });
  });
});
