import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, signIn, visit } from "../support/console.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

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
});
