import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, type Visit, visit, WINDOWS } from "../support/console.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";

const PRICES = { cheap: 10, dear: 5_000 };
const CONFIG = {
  providers: [{ id: "local", kind: "sandbox" }],
  models: Object.entries(PRICES).map(([id, output]) => ({
    id,
    price: { input: 1, output },
    routes: [{ provider: "local", model: "echo" }],
  })),
};

/** More than any page has stops for the keyboard. */
const TABS_MAX = 400;

const WALKERS = [
  { store: "SQLite", by: "mouse" },
  ...(hasPostgres ? ([{ store: "PostgreSQL", by: "keyboard" }] as const) : []),
] as const;

/** Common tasks in few clicks. Each result is checked through the API. */
describe.skipIf(!hasBrowser).each(WALKERS)("walks through the console on $store, by $by", ({ store, by }) => {
  let browser: Browser;
  let database: TestDatabase | undefined;
  let service: RunningService;
  let admin: AdminClient;
  let organization: Organization;
  let visitor: Visit;
  let page: Page;
  let clicks = 0;
  const click = async (place: Locator) => {
    clicks += 1;
    if (by === "mouse") return place.click();
    await tabTo(place);
    return page.keyboard.press("Enter");
  };
  /** Goes from stop to stop, as without a mouse, until the keyboard acts on this element. */
  const tabTo = async (place: Locator) => {
    await place.waitFor();
    for (let tabs = 0; tabs < TABS_MAX; tabs += 1) {
      if ((await place.and(page.locator(":focus")).count()) === 1) return;
      await page.keyboard.press("Tab");
    }
    throw new Error(`No stop of the keyboard is ${place}`);
  };
  const fill = async (place: Locator, text: string) => {
    if (by === "mouse") return place.fill(text);
    await tabTo(place);
    await page.keyboard.press("Control+a");
    return page.keyboard.type(text);
  };
  const button = (name: string, place: Page | Locator = page) => place.getByRole("button", { name, exact: true });
  const ask = async (token: string, model: keyof typeof PRICES, content = "one two three") => {
    const answer = await send(service, "/v1/chat/completions", token, { model, messages: [{ role: "user", content }] });
    return (await answer.json()) as { id: string };
  };
  /** Opens what a text belongs to, by keyboard. */
  const goTo = async (text: string, result: RegExp) => {
    await page.keyboard.press("Control+k");
    await page.keyboard.type(text);
    await page.locator("[role=listbox][aria-busy=false]").getByRole("option", { name: result }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Go to" }).waitFor({ state: "detached" });
  };

  beforeAll(async () => {
    if (store === "PostgreSQL") database = await createTestDatabase();
    [browser, service] = await Promise.all([
      launchBrowser(),
      startService({ config: CONFIG, databaseUrl: database?.url }),
    ]);
    admin = operator(service);
    organization = await makeOrganization(service, "50", { name: "web app" });
    visitor = await visit(browser, service, { viewport: WINDOWS.wide });
    page = visitor.page;
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await database?.drop();
  });

  test("A new customer gets credits and a token, and the first request is seen, in 6 clicks.", async () => {
    clicks = 0;
    await click(page.getByRole("link", { name: "Organizations" }));
    await click(button("New customer"));
    const dialog = page.getByRole("dialog");
    await fill(dialog.getByLabel("Name", { exact: true }), "Northwind");
    await fill(dialog.getByLabel("Credits"), "50");
    await dialog.getByText("Creates Northwind with 50.00 credits and one token.").waitFor();
    await click(button("Create customer", dialog));
    await dialog.getByText("You won't see it again").waitFor();
    const secret = (await dialog.locator(".secret").textContent()) ?? "";
    for (const client of ["curl", "TypeScript", "Python", "Claude Code", "Codex"]) {
      await dialog.getByRole("radio", { name: client }).check();
      await dialog
        .locator(".code")
        .getByText(client === "Claude Code" ? "ANTHROPIC_BASE_URL" : service.url)
        .waitFor();
    }
    await dialog.getByText("Waiting for a request").waitFor();
    await ask(secret, "cheap");
    await dialog.getByText("Completed", { exact: true }).waitFor();
    await click(button("Done", dialog));
    await page.getByRole("heading", { name: "Northwind", level: 1 }).waitFor();
    expect(clicks).toBeLessThanOrEqual(6);
    const { body } = await admin.call<{ data: { name: string; credits: { total: number } }[] }>(
      "GET",
      "/organizations?search=Northwind",
    );
    expect(body.data).toMatchObject([{ name: "Northwind", credits: { total: 50 } }]);
  });

  test("A new customer with 0 credits gets a token and no grant.", async () => {
    await page.goto("/organizations?create=customer");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill("Prospect");
    await dialog.getByLabel("Credits").fill("0");
    await dialog.getByText("Creates Prospect with 0.00 credits and one token.").waitFor();
    await button("Create customer", dialog).click();
    await dialog.getByText("You won't see it again").waitFor();
    await button("Done", dialog).click();
    await page.getByRole("heading", { name: "Prospect", level: 1 }).waitFor();
    const id = new URL(page.url()).pathname.split("/").at(-1);
    const { body } = await admin.call<{ data: unknown[] }>("GET", `/organizations/${id}/grants`);
    expect(body.data).toEqual([]);
  });

  test("A new customer whose token could not be created gets the credits of the second attempt, once.", async () => {
    let refusals = 2;
    await page.route("**/admin/v1/tokens", (route) =>
      refusals-- > 0
        ? route.fulfill({ status: 503, json: { error: { message: "Away", code: "unavailable" } } })
        : route.continue(),
    );
    await page.goto("/organizations?create=customer");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill("Interrupted");
    for (const credits of ["0", "100"]) {
      await dialog.getByLabel("Credits").fill(credits);
      await button("Create customer", dialog).click();
      await dialog.getByRole("alert").getByText("Away").waitFor();
    }
    await button("Create customer", dialog).click();
    await dialog.getByText("You won't see it again").waitFor();
    await button("Done", dialog).click();
    await page.unroute("**/admin/v1/tokens");
    const id = new URL(page.url()).pathname.split("/").at(-1);
    const { body } = await admin.call<{ data: unknown[] }>("GET", `/organizations/${id}/grants`);
    expect(body.data).toMatchObject([{ amount: 100 }]);
  });

  test("The most expensive requests of a day are one click from its bar.", async () => {
    const sent = [];
    for (const model of ["cheap", "dear", "cheap", "dear", "dear"] as const)
      sent.push(await ask(organization.token, model));
    await page.goto(`/?organization_id=${organization.id}`);
    await settled(page);
    const today = page.getByRole("link", { name: /in total, dear/ });
    clicks = 0;
    await click(today);
    const models = () => page.locator("tbody .row-link").allTextContents();
    await eventually(models).toEqual(["dear", "dear", "dear", "cheap", "cheap"]);
    expect(clicks).toBeLessThanOrEqual(3);
  });

  test("Requests are added up by model, and a sum leads to its requests.", async () => {
    await page.goto(`/requests?organization_id=${organization.id}&period=1`);
    await page.getByLabel("Group").selectOption("model");
    const row = page.getByRole("row").filter({ hasText: "dear" });
    expect(await row.getByRole("cell").nth(1).textContent()).toBe("3");
    const { body } = await admin.call<{ data: { charged: number; model: string }[] }>(
      "GET",
      `/requests?organization_id=${organization.id}`,
    );
    const micro = (credits: number) => Math.round(credits * 1e6);
    const total = body.data.reduce((sum, { charged }) => sum + micro(charged), 0) / 1e6;
    await page.getByText(`5 requests, ${total.toFixed(6).replace(/0{1,4}$/, "")} credits in total`).waitFor();
    await row.getByRole("link").click();
    await eventually(() => page.locator("tbody .row-link").allTextContents()).toEqual(["dear", "dear", "dear"]);
    await page.getByLabel("Sort").selectOption("tokens");
    await page.getByText("3 ended requests").waitFor();
  });

  test("The export of a period is two clicks away and has the requests of the list.", async () => {
    await page.goto(`/requests?organization_id=${organization.id}`);
    await page.getByLabel("Period").selectOption("month");
    const downloading = page.waitForEvent("download");
    clicks = 1;
    await click(page.getByRole("link", { name: "Export CSV" }));
    expect((await downloading).suggestedFilename()).toBe("requests.csv");
    expect(clicks).toBeLessThanOrEqual(2);
    const text = await page.request.get(
      (await page.getByRole("link", { name: "Export CSV" }).getAttribute("href")) ?? "",
    );
    expect((await text.text()).trim().split("\r\n")).toHaveLength(1 + 5);
  });

  test("The chosen columns stay chosen after a reload.", async () => {
    const heads = () => page.getByRole("columnheader").allTextContents();
    await button("Columns").click();
    await page.getByRole("checkbox", { name: "Metadata" }).check();
    await page.getByRole("checkbox", { name: "First token" }).uncheck();
    await button("Done").click();
    await eventually(heads).toContain("Metadata");
    await page.reload();
    await eventually(heads).toContain("Metadata");
    expect(await heads()).not.toContain("First token");
  });

  test("A request is refunded by the id of its answer, without a mouse.", async () => {
    const { id } = await ask(organization.token, "dear");
    await page.goto("/");
    await settled(page);
    await goTo(id, /Request/);
    const panel = page.getByRole("dialog", { name: "Request" });
    await button("Refund", panel).focus();
    await page.keyboard.press("Enter");
    const form = page.getByRole("dialog", { name: "Refund credits" });
    await form.getByText(/^Refunds /).waitFor();
    await page.keyboard.press("Enter");
    await form.waitFor({ state: "detached" });
    await panel.getByText("by an operator").waitFor();
    const { body } = await admin.call<{ charged: number; credited: number }>("GET", `/requests/${id}`);
    expect(body.credited).toBe(body.charged);
    expect(await button("Refund", panel).count()).toBe(0);
  });

  test("The cap of a token is raised in 3 clicks on its page, which shows its spend.", async () => {
    await page.goto("/");
    await settled(page);
    await goTo("web app", /Token/);
    await page.getByRole("heading", { name: "web app", level: 1 }).waitFor();
    await page.getByText(/^\d+\.\d+ credits, 6 ended requests$/).waitFor();
    clicks = 0;
    await click(button("Edit web app"));
    await fill(page.getByRole("dialog").getByLabel("Spending cap"), "45");
    await click(button("Save", page.getByRole("dialog")));
    await page
      .getByText(/held of 45\.00$/)
      .first()
      .waitFor();
    expect(clicks).toBeLessThanOrEqual(3);
    const { body } = await admin.call<{ cap: { amount: number } }>("GET", `/tokens/${organization.tokenId}`);
    expect(body.cap.amount).toBe(45);
  });

  test("A token is revoked on a phone in 4 clicks.", async () => {
    await page.setViewportSize(WINDOWS.narrow);
    await page.goto("/");
    clicks = 0;
    await click(button("Menu"));
    await click(page.getByRole("dialog").getByRole("link", { name: "Tokens" }));
    await click(button("Revoke web app"));
    await click(button("Revoke token", page.getByRole("dialog")));
    await page.getByRole("dialog").waitFor({ state: "detached" });
    expect(clicks).toBeLessThanOrEqual(4);
    const { body } = await admin.call<{ status: string }>("GET", `/tokens/${organization.tokenId}`);
    expect(body.status).toBe("revoked");
    expect(visitor.pageErrors).toEqual([]);
  });
});
