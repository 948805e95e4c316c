import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, settled, signIn, visit, WINDOWS } from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";

const SHIFT_MAX = 0.02;

/** Adds up the layout shifts of a page, also those that follow an input, which browsers leave out of their own sum. */
const OBSERVER = `
  globalThis.shift = 0;
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) globalThis.shift += entry.value; })
    .observe({ type: "layout-shift", buffered: true });
`;

describe.skipIf(!hasBrowser)("the layout of the console", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let page: Page;

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    organization = await makeOrganization(service, "10");
    const paused = await makeOrganization(service, "0");
    await operator(service).call("PATCH", `/organizations/${paused.id}`, { status: "paused" });
    const budget = { name: "team", window: "month", amount: 5 };
    await operator(service).call("POST", `/organizations/${organization.id}/budgets`, budget);
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "a" }] };
    for (let sent = 0; sent < 3; sent += 1) await send(service, "/v1/chat/completions", organization.token, body);
    ({ page } = await visit(browser, service));
    await page.addInitScript(OBSERVER);
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  /** Opens a page, waits for all of its content, and returns how much of it moved meanwhile. */
  async function shiftOf(path: string): Promise<number> {
    await page.goto(path, { waitUntil: "networkidle" });
    await settled(page);
    await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
    return page.evaluate<number>("globalThis.shift");
  }

  test.each(["wide", "narrow"] as const)("Nothing moves while a page loads (%s).", async (size) => {
    await page.setViewportSize(WINDOWS[size]);
    const tabs = ["usage", "tokens", "budgets", "statement", "settings"];
    const paths = [
      ...PAGE_PATHS.filter(({ roles }) => (roles as readonly string[]).includes("operator")).map(({ path }) => path),
      ...["", ...tabs.map((tab) => `?tab=${tab}`)].map((tab) => `/organizations/${organization.id}${tab}`),
      `/tokens/${organization.tokenId}`,
    ];
    const shifts: Record<string, number> = {};
    for (const path of paths) {
      const shift = await shiftOf(path);
      if (shift > SHIFT_MAX) shifts[path] = shift;
    }
    expect(shifts).toEqual({});
  });
});
