import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, type Visit, visit, WINDOWS } from "../support/console.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

/** The service with only the sandbox at first; a later start has a provider. */
const PROVIDER = {
  providers: [{ id: "local", kind: "openai-compatible", baseUrl: "http://127.0.0.1:1/v1", apiKey: "none" }],
  models: [{ id: "house", price: { input: 1, output: 2 }, routes: [{ provider: "local", model: "house" }] }],
};

describe.skipIf(!hasBrowser)("the first steps", () => {
  let dataDir: string;
  let browser: Browser;
  let service: RunningService;
  let admin: AdminClient;
  let visitor: Visit;
  let page: Page;
  let organization: Organization;
  const card = () => page.locator(".card").filter({ has: page.getByRole("heading", { name: "First steps" }) });
  const open = async () => {
    await page.goto("/");
    await settled(page);
  };

  beforeAll(async () => {
    dataDir = await makeDirectory();
    [browser, service] = await Promise.all([launchBrowser(), startService({ dataDir })]);
    admin = operator(service);
    visitor = await visit(browser, service, { viewport: WINDOWS.wide });
    page = visitor.page;
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await rm(dataDir, { recursive: true, force: true });
  });

  test("A new service shows five steps, and none is done.", async () => {
    await card().getByText("0 of 5 done").waitFor();
    await card().getByText("tollgate store backup FILE").waitFor();
  });

  test("Each step is checked when it is done, and the list ends by itself.", async () => {
    organization = await makeOrganization(service, "50", { name: "Northwind" });
    await open();
    await card().getByText("1 of 5 done").waitFor();
    const messages = [{ role: "user", content: "one two three" }];
    expect(
      (await send(service, "/v1/chat/completions", organization.token, { model: "sandbox/echo", messages })).status,
    ).toBe(200);
    await open();
    await card().getByText("2 of 5 done").waitFor();
    await service.tollgate("store", "backup", join(dataDir, "backup.db"));
    const { body } = await admin.call<{ data: unknown[] }>("GET", "/audit?action=store.backup");
    expect(body.data).toMatchObject([
      { actor: { kind: "command" }, organization_id: null, after: { bytes: expect.any(Number), books_balance: true } },
    ]);
    await open();
    await card().getByText("3 of 5 done").waitFor();
    const { body: left } = await admin.call("POST", "/operators", { name: "Left", role: "operator" });
    await admin.call("DELETE", `/operators/${left.id}`);
    await open();
    await card().getByText("3 of 5 done").waitFor();
    await admin.call("POST", "/operators", { name: "Ada", role: "operator" });
    await open();
    await card().getByText("4 of 5 done").waitFor();
    await service.end();
    service = await startService({ dataDir, port: Number(new URL(service.url).port), config: PROVIDER });
    await open();
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    await page.getByRole("term").filter({ hasText: "Spent" }).waitFor();
    await eventually(() => page.evaluate("localStorage.getItem('tollgate_first_steps_over')")).toBe("true");
    expect(await card().count()).toBe(0);
    expect(visitor.pageErrors).toEqual([]);
  });

  test("The details of a model count its requests of the last 30 days.", async () => {
    await page.goto("/models");
    await page.getByRole("link", { name: "Sandbox Echo" }).click();
    const panel = page.getByRole("dialog", { name: "Sandbox Echo" });
    const factOf = (name: string) =>
      panel
        .locator(".facts > div")
        .filter({ hasText: new RegExp(`^${name}`) })
        .locator("dd");
    await eventually(() => factOf("Requests").textContent()).toBe("1");
    expect(await factOf("Failed").textContent()).toBe("0%");
    await panel.getByRole("group", { name: /^Requests per day/ }).waitFor();
  });

  test("The question mark lists the shortcuts, but not while someone types, and it can be turned off.", async () => {
    const list = page.getByRole("dialog", { name: "Keyboard shortcuts" });
    await page.goto("/organizations");
    await page.getByRole("heading", { name: "Organizations", level: 1 }).click();
    await page.keyboard.press("?");
    await list.getByText("Show this list").waitFor();
    await page.keyboard.press("?");
    expect(await list.count()).toBe(1);
    await list.getByLabel("Open this list with the key ?").uncheck();
    await page.keyboard.press("Escape");
    await list.waitFor({ state: "detached" });
    await page.keyboard.press("?");
    await page.getByRole("button", { name: "Keyboard shortcuts" }).click();
    await list.getByLabel("Open this list with the key ?").check();
    await page.keyboard.press("Escape");
    await list.waitFor({ state: "detached" });
    await page.getByRole("searchbox").first().click();
    await page.keyboard.press("?");
    expect(await page.getByRole("searchbox").first().inputValue()).toBe("?");
    expect(await list.count()).toBe(0);
  });

  test("A printed statement has every entry and nothing of the console around it.", async () => {
    for (let number = 1; number <= 120; number += 1) {
      await admin.call("POST", `/organizations/${organization.id}/grants`, { amount: 1, reference: `grant-${number}` });
    }
    await page.addInitScript("window.printed = 0; window.print = () => { window.printed += 1; };");
    await page.goto(`/organizations/${organization.id}?tab=statement`);
    const rows = page.getByRole("table", { name: "Statement" }).locator("tbody tr:not(.skeleton-row)");
    await eventually(() => rows.count()).toBe(50);
    await page.getByRole("button", { name: "Print", exact: true }).click();
    await eventually(() => page.evaluate("window.printed")).toBe(1);
    expect(await rows.count()).toBe(122);
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    const isShown = (selector: string) => page.locator(selector).first().isVisible();
    expect(await isShown(".page-head h1")).toBe(true);
    expect(await isShown(".statement-totals")).toBe(true);
    expect(await isShown("[data-printed] .print-only")).toBe(true);
    for (const hidden of [".sidebar", ".actions", ".tabs", ".tiles", ".more"])
      expect(await isShown(hidden)).toBe(false);
    await page.evaluate("dispatchEvent(new Event('afterprint'))");
    await page.emulateMedia({ media: "screen" });
    await page.locator("[data-printed]").waitFor({ state: "detached" });
    expect(await isShown(".tiles")).toBe(true);
  });
});
