import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ListedStatement, MonthlyStatement } from "../../src/api/admin/credits.ts";
import { monthStart } from "../../src/api/time.ts";
import { operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, visit, WINDOWS } from "../support/console.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { makeStatements } from "../support/statements.ts";

const LETTERHEAD = {
  name: "Gate GmbH",
  address: ["Example Street 1", "89073 Ulm"],
  taxId: "DE123456789",
  footer: "Thank you for your order",
};
/** Widths of A4 and Letter in pixels, less the margins. */
const PAPER = { A4: 673, Letter: 695 };

describe.skipIf(!hasBrowser)("the monthly statements", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let page: Page;
  let listed: ListedStatement;
  const isShown = (selector: string) => page.locator(selector).first().isVisible();
  const factOf = async (name: string) =>
    (await page.locator(".statement .facts > div").filter({ hasText: name }).locator("dd").textContent()) ?? "";
  /** Converts an amount that the page shows to micro-credits. */
  const micro = (text: string) => Math.round(Number(text.replaceAll(",", "").replace("−", "-")) * 1e6);

  beforeAll(async () => {
    const config = { statements: { numberPrefix: "GATE-", letterhead: LETTERHEAD } };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    organization = await makeOrganization(service, "12.5", { name: "Customer & Co", scopes: MEMBER_SCOPES });
    await operator(service).call("PATCH", `/organizations/${organization.id}`, { contacts: ["pay@example.com"] });
    for (const content of ["one", "one two three"]) {
      const body = { model: "sandbox/echo", messages: [{ role: "user", content }] };
      await (await send(service, "/v1/chat/completions", organization.token, body)).text();
    }
    const statements = await makeStatements(service, organization.id);
    listed = statements.at(-1) as ListedStatement;
    ({ page } = await visit(browser, service));
    await page.addInitScript("window.printed = 0; window.print = () => { window.printed += 1; };");
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test("The list leads to a page with the figures of the month's statement, to the micro-credit.", async () => {
    await page.goto(`/organizations/${organization.id}?tab=statement`);
    await page.getByRole("link", { name: "Monthly statements" }).click();
    await page.getByRole("link", { name: listed.id, exact: true }).click();
    await page.getByRole("heading", { name: `Statement ${listed.id}`, level: 1 }).waitFor();
    await settled(page);
    const from = new Date(monthStart(Date.now(), -2)).toISOString();
    const to = new Date(monthStart(Date.now(), -1)).toISOString();
    const path = `/organizations/${organization.id}/statement?from=${from}&to=${to}`;
    type Totals = { opening: number; closing: number; totals: Record<string, number> };
    const { opening, closing, totals } = (await operator(service).call<Totals>("GET", path)).body;
    const shown = {
      "Opening balance": opening,
      "Closing balance": closing,
      Granted: totals.grant,
      Charged: totals.charge,
    };
    expect(totals.charge).toBeLessThan(0);
    for (const [name, amount] of Object.entries(shown))
      expect(micro(await factOf(name))).toBe(Math.round((amount ?? 0) * 1e6));
    const { body } = await operator(service).call<MonthlyStatement>("GET", `/statements/${listed.id}`);
    expect(body).toMatchObject({ opening, closing, totals, final: false });
    const rows = page.getByRole("table", { name: "Charges by model" }).locator("tbody tr");
    const amounts = await rows.locator("td:last-child").allTextContents();
    expect(amounts.map(micro)).toEqual(body.models.map(({ amount }) => Math.round(amount * 1e6)));
    expect(amounts.map(micro).reduce((sum, one) => sum + one, 0)).toBe(Math.round((totals.charge ?? 0) * 1e6));
    for (const text of [
      ...LETTERHEAD.address,
      LETTERHEAD.name,
      LETTERHEAD.taxId,
      LETTERHEAD.footer,
      "pay@example.com",
    ]) {
      await page.locator(".statement").getByText(text, { exact: true }).waitFor();
    }
  });

  test("On paper of both sizes it has nothing of the console around it, and nothing is cut off.", async () => {
    await page.goto(`/statements/${listed.id}`);
    await page.locator(".statement-foot").waitFor();
    await page.getByRole("button", { name: "Print", exact: true }).click();
    await eventually(() => page.evaluate("window.printed")).toBe(1);
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    for (const width of Object.values(PAPER)) {
      await page.setViewportSize({ width, height: 900 });
      for (const part of [".page-head h1", ".statement-head", ".statement .facts", ".statement-foot"]) {
        expect(await isShown(part)).toBe(true);
      }
      for (const hidden of [".sidebar", ".actions", ".topbar"]) expect(await isShown(hidden)).toBe(false);
      const widest = await page.evaluate(
        "Math.max(...[...document.querySelectorAll('.statement *')].map((part) => part.getBoundingClientRect().right))",
      );
      expect(widest).toBeLessThanOrEqual(width);
      expect(await page.evaluate("getComputedStyle(document.documentElement).colorScheme")).toBe("light");
    }
    for (const format of Object.keys(PAPER)) {
      const pdf = (await page.pdf({ format })).toString("latin1");
      expect(pdf.match(/\/Type \/Page\b/g)?.length).toBeLessThanOrEqual(2);
    }
    await page.emulateMedia({ media: "screen" });
    await page.setViewportSize(WINDOWS.wide);
  });

  test("The CSV file has the same amounts, and a member finds their own statements only.", async () => {
    await page.goto(`/statements/${listed.id}`);
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Export CSV" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe(`${listed.id}.csv`);
    const lines = (await readFile(await download.path(), "utf8")).split("\r\n");
    expect(lines).toContain(`totals,,closing,,,,,,,,${listed.closing}`);
    const other = await makeOrganization(service, "3");
    const [foreign] = await makeStatements(service, other.id);
    const member = await visit(browser, service);
    await signIn(member.page, organization.token);
    await member.page.goto("/statements");
    await member.page.getByRole("link", { name: listed.id, exact: true }).waitFor();
    expect(await member.page.getByRole("link", { name: foreign?.id ?? "", exact: true }).count()).toBe(0);
    await member.page.goto(`/statements/${foreign?.id}`);
    await member.page.getByText("does not exist").first().waitFor();
  });
});
