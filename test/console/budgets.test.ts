import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, signIn, visit } from "../support/console.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

interface Counter {
  value: string | null;
  limit: number;
  spent: number;
  held: number;
  remaining: number;
}
interface Budget {
  id: string;
  name: string;
  selector: object;
  each: string | null;
  window: string;
  amount: number;
  current: Counter | null;
}

/** Reads the figures of "0.50 spent, 0.00 held of 1,002.00". */
function figuresOf(text: string) {
  const [, spent, held, limit] = /([\d.,]+) spent, ([\d.,]+) held of ([\d.,]+\d)/.exec(text) ?? [];
  const [inCredits, heldCredits, limitCredits] = [spent, held, limit].map((one) => Number(one?.replaceAll(",", "")));
  return { spent: inCredits, held: heldCredits, limit: limitCredits };
}

describe.skipIf(!hasBrowser)("budgets in the console", () => {
  let browser: Browser;
  let service: RunningService;
  let admin: AdminClient;
  let organization: Organization;
  let page: Page;
  let dialog: Locator;

  const path = () => `/organizations/${organization.id}/budgets`;
  const section = (of = page) => of.getByRole("region", { name: "Budgets", exact: true });
  const row = (name: string) => section().getByRole("row").filter({ hasText: name });
  const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const confirm = async (name: string) => {
    await dialog.getByRole("button", { name, exact: true }).click();
    await dialog.waitFor({ state: "detached" });
  };
  const budgets = async () => (await admin.call<{ data: Budget[] }>("GET", path())).body.data;
  const budgetOf = async (name: string) => (await budgets()).find((budget) => budget.name === name);
  const counterOf = async (name: string, value: string) => {
    const { id } = (await budgetOf(name)) as Budget;
    const { body } = await admin.call<{ counters: { data: Counter[] } }>("GET", `${path()}/${id}`);
    return body.counters.data.find((counter) => counter.value === value);
  };
  const post = (user: string, content: string, model: string, signal?: AbortSignal) => {
    const body = { model, messages: [{ role: "user", content }], max_tokens: 20, metadata: { user } };
    return send(service, "/v1/chat/completions", organization.token, body, { signal: signal ?? null });
  };
  const ask = async (user: string) => {
    const answer = await post(user, "Good morning", "sandbox/echo");
    await answer.text();
    return answer.status;
  };
  const figures = async (name: string) =>
    figuresOf(
      await row(name)
        .getByText(/ spent, /)
        .innerText(),
    );

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    const token = await adminTokenOf(service);
    admin = operator(service);
    organization = await makeOrganization(service, "50", { name: "web app", scopes: MEMBER_SCOPES });
    ({ page } = await visit(browser, service));
    dialog = page.getByRole("dialog");
    await signIn(page, token);
    await page.goto(`/organizations/${organization.id}?tab=budgets`);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test("The operator creates a budget with every term, and an error of the service is shown at its field.", async () => {
    await press("Create budget");
    await dialog.getByLabel("Name", { exact: true }).fill("web team");
    await pick(dialog, "Tokens", "web app");
    await dialog.getByRole("list", { name: "Selected tokens" }).getByText("web app").waitFor();
    await dialog.getByLabel("Models", { exact: true }).fill("sandbox/*, no/such-model");
    await dialog.getByLabel("Metadata", { exact: true }).fill("user=ada\nuser=bob");
    await dialog.getByLabel("Credits", { exact: true }).fill("2");
    await dialog.getByLabel("Window (UTC)").selectOption("day");
    await dialog.getByRole("button", { name: "Create budget" }).click();
    const models = dialog.getByLabel("Models", { exact: true });
    await eventually(() => models.getAttribute("aria-invalid")).toBe("true");
    await dialog.locator(".field-error").getByText("no/such-model").waitFor();
    await models.fill("sandbox/*");
    await eventually(() => models.getAttribute("aria-invalid")).toBeNull();
    const covered = "Requests of web app, for sandbox/*, with user ada or bob";
    await dialog.getByRole("status").getByText(`${covered}: 2.00 credits a day.`).waitFor();
    await confirm("Create budget");
    await row("web team").getByText(covered).waitFor();
    await row("web team").getByText("Caller-supplied").waitFor();
    expect(await budgets()).toMatchObject([
      {
        name: "web team",
        selector: { tokens: [organization.tokenId], models: ["sandbox/*"], metadata: { user: ["ada", "bob"] } },
        each: null,
        window: "day",
        amount: 2,
      },
    ]);
  });

  test("The row shows what is spent and held, what remains and when the window ends.", async () => {
    expect(await ask("ada")).toBe(200);
    await eventually(async () => (await figures("web team")).spent).toBeGreaterThan(0);
    const current = (await budgetOf("web team"))?.current;
    expect(await figures("web team")).toEqual({ spent: current?.spent, held: 0, limit: 2 });
    await row("web team").getByTitle(`${current?.remaining} credits`, { exact: true }).waitFor();
    await row("web team").getByText("00:00:00 UTC").waitFor();
    expect(await row("web team").locator(".share").getAttribute("aria-hidden")).toBe("true");
  });

  test("The row shows what a running request holds, until it ends.", async () => {
    const leaving = new AbortController();
    const left = expect(post("bob", "delay 600s", "sandbox/fault", leaving.signal)).rejects.toThrow();
    await eventually(async () => (await figures("web team")).held).toBeGreaterThan(0);
    expect((await budgetOf("web team"))?.current?.held).toBe((await figures("web team")).held);
    leaving.abort();
    await left;
    await eventually(async () => (await figures("web team")).held).toBe(0);
  });

  test("A raise and a change are shown.", async () => {
    await press("Raise web team");
    await dialog.getByLabel("Credits", { exact: true }).fill("1000");
    await confirm("Raise budget");
    await row("web team").getByText("of 1,002.00").waitFor();
    await row("web team").getByText("Raised from 2.00 in this window").waitFor();
    expect((await budgetOf("web team"))?.current?.limit).toBe(1002);
    await press("Change web team");
    await dialog.getByLabel("Name").fill("web people");
    await dialog.getByLabel("Credits", { exact: true }).fill("3");
    await confirm("Save");
    await row("web people").getByText("of 1,003.00").waitFor();
    expect(await budgetOf("web people")).toMatchObject({ amount: 3 });
  });

  test("A budget that is lowered below what is spent is used up and refuses requests until it is deleted.", async () => {
    await admin.call("POST", path(), { name: "tiny", window: "lifetime", amount: 1 });
    expect(await ask("ada")).toBe(200);
    await row("tiny").getByText("Never", { exact: true }).waitFor();
    await press("Change tiny");
    await dialog.getByLabel("Credits", { exact: true }).fill("0.000001");
    await confirm("Save");
    await row("tiny").getByText("Used up", { exact: true }).waitFor();
    const bar = row("tiny").locator(".share > span").first();
    expect(await bar.getAttribute("style")).toBe("width: 100%;");
    expect(await ask("ada")).toBe(402);
    await press("Delete tiny");
    await dialog.getByText("All requests are no longer limited by this budget.").waitFor();
    await confirm("Delete budget");
    await row("tiny").waitFor({ state: "detached" });
    expect(await ask("ada")).toBe(200);
  });

  test("A budget of each user shows the values, and one of them is raised.", async () => {
    await press("Create budget");
    await dialog.getByLabel("Name", { exact: true }).fill("every user");
    await dialog.getByLabel("The amount and the limits are for").selectOption("metadata");
    await dialog.getByLabel("Metadata key").fill("user");
    await dialog.getByLabel("Credits", { exact: true }).fill("2");
    await confirm("Create budget");
    await row("every user").getByText("Separately for each value of user").waitFor();
    for (const user of ["ada", "bob"]) expect(await ask(user)).toBe(200);
    await press("Show values of every user");
    await dialog.getByRole("row").filter({ hasText: "bob" }).waitFor();
    await dialog.getByRole("button", { name: "Raise ada", exact: true }).click();
    await dialog.getByRole("heading", { name: "Raise ada in every user" }).waitFor();
    await dialog.getByLabel("Credits", { exact: true }).fill("3");
    await confirm("Raise budget");
    await press("Show values of every user");
    await dialog.getByRole("row").filter({ hasText: "ada" }).getByText("of 5.00").waitFor();
    await dialog.getByRole("row").filter({ hasText: "bob" }).getByText("of 2.00").waitFor();
    expect((await counterOf("every user", "ada"))?.limit).toBe(5);
    expect((await counterOf("every user", "bob"))?.limit).toBe(2);
    await page.keyboard.press("Escape");
  });

  test("A budget of limits alone is created and changed, and shows no spending.", async () => {
    await press("Create budget");
    await dialog.getByLabel("Name", { exact: true }).fill("one at a time");
    await dialog.getByRole("button", { name: "Create budget" }).click();
    await dialog.getByText("Enter credits, limits or both.").waitFor();
    await dialog.getByLabel("Requests per minute").fill("60");
    await dialog.getByLabel("Concurrent requests").fill("1");
    await dialog.getByText("All requests: 60 requests per minute, 1 concurrent request.").waitFor();
    await confirm("Create budget");
    await row("one at a time").getByText("At most 60 requests per minute, 1 concurrent request").waitFor();
    expect(await row("one at a time").getByRole("button", { name: "Raise" }).count()).toBe(0);
    await press("Change one at a time");
    await dialog.getByLabel("Concurrent requests").fill("");
    await confirm("Save");
    await row("one at a time").getByText("At most 60 requests per minute", { exact: true }).waitFor();
    const limits = { requests_per_minute: 60 };
    expect(await budgetOf("one at a time")).toMatchObject({ amount: null, current: null, limits });
  });

  test("The values of a budget are shown page by page.", async () => {
    const { body } = await admin.call("POST", path(), {
      ...{ name: "every team", each: "metadata.team", window: "month", amount: 1 },
    });
    for (let team = 0; team < 51; team += 1) {
      await admin.call("POST", `${path()}/${body.id}/raises`, { amount: 1, value: `team ${team}` });
    }
    await press("Show values of every team");
    const rows = dialog.locator("tbody tr:not(.skeleton-row)");
    await eventually(() => rows.count()).toBe(50);
    await dialog.getByRole("button", { name: "Show more" }).click();
    await eventually(() => rows.count()).toBe(51);
    await page.keyboard.press("Escape");
  });

  test("The cap of a token is listed without buttons, and leads to its token.", async () => {
    await admin.call("PATCH", `/tokens/${organization.tokenId}`, { cap: 40 });
    const cap = row("Spending cap");
    await cap.getByText("Requests of web app").waitFor();
    expect(await cap.getByRole("button").count()).toBe(0);
    await cap.getByRole("link", { name: "Edit on the token's page" }).click();
    await page.getByRole("heading", { name: "web app", level: 1 }).waitFor();
    await page
      .getByText(/held of 40\.00$/)
      .first()
      .waitFor();
  });

  test("The audit log says in a sentence what a budget covers.", async () => {
    await page.goto("/audit");
    // The raises of the values are the latest entries.
    await press("Show more");
    const entry = page.getByRole("row").filter({ hasText: "Budget created" });
    const covered = `covers: Requests of ${organization.tokenId}, for sandbox/*, with user ada or bob`;
    await entry.filter({ hasText: covered }).waitFor();
    await entry.filter({ hasText: "every user" }).getByText("separately for: each value of user").waitFor();
    expect(await page.getByText("tokens none").count()).toBe(0);
  });

  test.each(["auditor", "member"])(
    "The %s sees the budgets and their values, but no buttons that change them.",
    async (role) => {
      const auditor = () => service.tollgate<{ token: string }>("operator", "create", "Ada", "--role", "auditor");
      const token = role === "auditor" ? (await auditor()).token : organization.token;
      const reader = await visit(browser, service);
      await signIn(reader.page, token);
      await reader.page.goto(role === "auditor" ? `/organizations/${organization.id}?tab=budgets` : "/credits");
      await section(reader.page).getByText("every user", { exact: true }).waitFor();
      await reader.page.getByRole("button", { name: "Show values of every user" }).click();
      await reader.page.getByRole("dialog").getByText("of 5.00").waitFor();
      const changing = reader.page.getByRole("button", { name: /^(Create budget|Change|Raise|Delete)/ });
      expect(await changing.count()).toBe(0);
      await reader.close();
    },
  );
});
