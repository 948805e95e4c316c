import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, found, pick, settled, signIn, visit } from "../support/console.ts";
import { type RunningService, startService } from "../support/service.ts";

const COUNT = 1000;
/** The organization that is created first is the last of the list. */
const LAST = "Department 1 of many";

describe.skipIf(!hasBrowser)("among a thousand organizations", () => {
  let browser: Browser;
  let service: RunningService;
  let admin: AdminClient;
  let page: Page;
  let lastId: string;
  const field = () => page.getByRole("combobox", { name: "Organization" });

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    ({ page } = await visit(browser, service));
    await signIn(page, await adminTokenOf(service));
    admin = operator(service);
    const { body } = await admin.call<{ id: string }>("POST", "/organizations", { name: LAST });
    lastId = body.id;
    await admin.call("POST", `/organizations/${lastId}/grants`, { amount: 5 });
    makeMany(service);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test.each(["/", "/tokens", "/requests", "/audit"])(
    "The filter of %s finds the last organization and keeps it.",
    async (path) => {
      await page.goto(path);
      await pick(page, "Organization", LAST);
      await page.waitForURL(`**${path}?organization_id=${lastId}`);
      await page.reload();
      await settled(page);
      await eventually(() => field().inputValue()).toBe(LAST);
      await field().click();
      await page.getByRole("option", { name: "All organizations" }).click();
      await page.waitForURL(`**${path}`);
      await eventually(() => field().inputValue()).toBe("");
    },
  );

  test("The last organization gets a token and is charged in the playground.", async () => {
    await page.goto("/tokens");
    await page.getByRole("button", { name: "Create token" }).click();
    const dialog = page.getByRole("dialog");
    await pick(dialog, "Organization", LAST);
    await dialog.getByLabel("Name").fill("of the last one");
    await dialog.getByRole("button", { name: "Create token" }).click();
    await dialog.getByRole("button", { name: "Done" }).click();
    const row = page.getByRole("row").filter({ hasText: "of the last one" });
    await row.getByText(LAST).waitFor();
    await page.goto("/playground");
    await pick(page, "Charged to", LAST);
    await page.getByLabel("Message", { exact: true }).fill("Good morning");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.getByText(/tokens out · .* credits/).waitFor();
    const { body } = await admin.call<{ credits: { used: number } }>("GET", `/organizations/${lastId}`);
    expect(body.credits.used).toBeGreaterThan(0);
  });

  test("The picker finds an organization by keyboard alone and by its ID.", async () => {
    await page.goto("/tokens");
    await field().focus();
    expect(await field().getAttribute("aria-expanded")).toBe("false");
    await page.keyboard.type("department 77");
    await page.getByRole("status").getByText("11 matches").waitFor();
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    const second = found(page).getByRole("option").nth(1);
    const active = await second.getAttribute("id");
    await eventually(() => field().getAttribute("aria-activedescendant")).toBe(active);
    const name = await second.locator("span").first().textContent();
    await page.keyboard.press("Enter");
    await page.waitForURL("**/tokens?organization_id=org_*");
    await eventually(() => field().inputValue()).toBe(name);
    await eventually(() => page.evaluate("getSelection().toString()")).toBe(name);
    await page.keyboard.type(lastId);
    await found(page).getByRole("option", { name: LAST }).waitFor();
    await page.keyboard.press("Enter");
    await page.waitForURL(`**/tokens?organization_id=${lastId}`);
  });

  test("Typed text without a selection changes nothing, and Escape closes the list before the form.", async () => {
    await page.goto("/tokens");
    await page.getByRole("button", { name: "Create token" }).click();
    const dialog = page.getByRole("dialog");
    const inside = dialog.getByRole("combobox", { name: "Organization" });
    await inside.fill("Department");
    await dialog.getByText("More matches. Type more to narrow the list.").waitFor();
    await inside.fill("Nobody");
    await dialog.getByText("No matches.").waitFor();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Escape");
    await dialog.getByText("No matches.").waitFor({ state: "detached" });
    await eventually(() => inside.inputValue()).toBe("");
    await inside.fill("Department");
    await found(dialog).getByRole("option").first().waitFor();
    await page.keyboard.press("Tab");
    await dialog.getByRole("listbox").waitFor({ state: "detached" });
    expect(await inside.inputValue()).toBe("");
    await page.keyboard.press("Escape");
    await dialog.getByRole("button", { name: "Discard" }).click();
    await dialog.waitFor({ state: "detached" });
  });
});

/** Inserts the other organizations into the database directly, which is faster than through the API. */
function makeMany(service: RunningService): void {
  const database = new DatabaseSync(join(service.dataDir, "tollgate.db"), { timeout: 60_000 });
  const series = `WITH RECURSIVE series (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM series WHERE n < ${COUNT})`;
  const createdAt = Date.now();
  database.exec(`BEGIN;
    INSERT INTO organization (id, name, kind, created_at)
    ${series} SELECT 'org_' || n, 'Department ' || n, 'standard', ${createdAt} + n FROM series;
    INSERT INTO balance (organization_id, granted, available, held, spent, expired)
    ${series} SELECT 'org_' || n, 0, 0, 0, 0, 0 FROM series;
    COMMIT;`);
  database.close();
}
