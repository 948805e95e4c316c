import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator as operatorOf } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, problemsOf, settled, signIn, type Visit, visit } from "../support/console.ts";
import { onOneDay } from "../support/patience.ts";
import { MEMBER_SCOPES, makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const DAY_MS = 86_400_000;

describe.skipIf(!hasBrowser)("the banners about trouble", () => {
  let browser: Browser;
  let service: RunningService;
  let upstream: Upstream;
  let operator: Visit;
  let page: Page;

  beforeAll(async () => {
    upstream = await startUpstream();
    upstream.behave("vendor/m", ({ response }) => sendJson(response, 429, {}, { "retry-after": "3600" }));
    const model = { id: "m", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "vendor/m" }] };
    const config = { providers: [upstream.provider], models: [model] };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    operator = await visit(browser, service);
    page = operator.page;
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await upstream?.close();
  });

  const problems = (shown = page) => shown.getByRole("region", { name: "Problems" });
  const admin = () => operatorOf(service);

  test("A service in order shows no problems.", async () => {
    await settled(page);
    await page.getByText("No requests yet").waitFor();
    expect(await problems().count()).toBe(0);
  });

  test("The operator sees a route that is not called, and ends its pause there.", async () => {
    const { token } = await makeOrganization(service, "10");
    const body = { model: "m", messages: [{ role: "user", content: "a" }] };
    expect((await send(service, "/v1/chat/completions", token, body)).status).toBe(503);
    await page.reload();
    const banner = problems().getByText("1 route is down or paused").locator("..");
    await banner.getByText(/up\/vendor\/m: rate limited, .* paused until \d\d:\d\d:\d\d UTC/).waitFor();
    expect(await problemsOf(operator, "route banner")).toEqual([]);
    await banner.getByRole("button", { name: "Resume up/vendor/m" }).click();
    await banner.waitFor({ state: "detached" });
    expect((await send(service, "/v1/chat/completions", token, body)).status).toBe(503);
    expect(upstream.requests).toHaveLength(2);
    await admin().call("POST", "/routes/resume", { route: "up/vendor/m" });
  });

  test("The operator sees what stops organizations, with links to them.", async () => {
    const paused = await makeOrganization(service, "10");
    await admin().call("PATCH", `/organizations/${paused.id}`, { name: "On hold", status: "paused" });
    await makeOrganization(service, "0");
    await page.goto("/");
    await problems()
      .getByText(/^1 of \d organizations cannot pay$/)
      .waitFor();
    await problems().getByRole("link", { name: "On hold" }).click();
    await page.getByRole("heading", { name: "On hold", level: 1 }).waitFor();
    await problems().getByText("New requests are refused with 403 organization_paused.").waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
    await problems().waitFor({ state: "detached" });
  });

  test("The overview names an organization that was refused for credits, and leads to these requests.", async () => {
    const empty = await makeOrganization(service, "0");
    await admin().call("PATCH", `/organizations/${empty.id}`, { name: "Out of credits" });
    const body = { model: "m", messages: [{ role: "user", content: "a" }] };
    for (const _ of [1, 2, 3]) {
      expect((await send(service, "/v1/chat/completions", empty.token, body)).status).toBe(402);
    }
    const row = page
      .getByRole("table", { name: "Organizations refused for credits" })
      .getByRole("row", { name: /Out of credits/ });
    await eventually(async () => {
      await page.goto("/");
      await settled(page);
      return row.allTextContents();
    }).toEqual(["Out of credits3"]);
    await row.getByRole("link", { name: "3" }).click();
    await eventually(() => new URL(page.url()).searchParams.toString()).toMatch(/insufficient_credits/);
    expect(new URL(page.url()).searchParams.get("organization_id")).toBe(empty.id);
    await page.getByRole("row").filter({ hasText: "insufficient_credits" }).first().waitFor();
  });

  test("People of an organization see that its credits and its tokens end soon.", async () => {
    const own = await makeOrganization(service, "1", { name: "front end", scopes: MEMBER_SCOPES });
    const path = `/organizations/${own.id}`;
    await admin().call("PATCH", path, { credit_warnings: [5] });
    await admin().call("PATCH", `/tokens/${own.tokenId}`, { expires_at: new Date(Date.now() + 2.5 * DAY_MS) });
    const member = await visit(browser, service);
    await signIn(member.page, own.token);
    for (const place of ["/", "/credits"]) {
      await member.page.goto(place);
      await problems(member.page).getByText("Few credits are left").waitFor();
      await problems(member.page).getByText("You are warned at 5.00.").waitFor();
      await problems(member.page).getByText("1 token expires within 7 days").waitFor();
      await problems(member.page).getByRole("link", { name: "front end expires in 2 days" }).waitFor();
    }
    expect(await problemsOf(member, "banners of an organization")).toEqual([]);
    await member.page.goto(`/tokens/${own.tokenId}`);
    await member.page.getByText("This token expires in 2 days").waitFor();
    await page.goto(path);
    await problems().getByText("Few credits are left").waitFor();
    expect(member.pageErrors).toEqual([]);
    await member.close();
  });

  test("A member asks for credits, once a day.", async () => {
    await onOneDay();
    const own = await makeOrganization(service, "1", { scopes: MEMBER_SCOPES });
    const member = await visit(browser, service);
    await signIn(member.page, own.token);
    await member.page.goto("/credits");
    const dialog = member.page.getByRole("dialog");
    const ask = async (amount: string) => {
      await member.page.getByRole("button", { name: "Request credits" }).click();
      await dialog.getByLabel("Credits", { exact: true }).fill(amount);
      await dialog.getByRole("button", { name: "Send request" }).click();
    };
    await ask("many");
    await dialog.locator("[aria-invalid]").waitFor();
    expect(await problemsOf(member, "a request for credits")).toEqual([]);
    await dialog.getByLabel("Credits", { exact: true }).fill("20");
    await dialog.getByLabel("Note").fill("For the demo");
    await dialog.getByRole("button", { name: "Send request" }).click();
    await member.page.getByText("Your request for credits was sent.").waitFor();
    await ask("30");
    await dialog.getByText("You have already asked today. Nothing was sent.").waitFor();
    expect(member.pageErrors).toEqual([]);
    await member.close();
    await page.goto("/audit");
    await page.getByRole("row").filter({ hasText: "Credits requested" }).first().waitFor();
  });

  test("The operator sets at which credits an organization is warned, and sets it back.", async () => {
    const own = await makeOrganization(service, "10");
    const path = `/organizations/${own.id}`;
    const warnings = async () => (await admin().call<{ credit_warnings: unknown }>("GET", path)).body.credit_warnings;
    await page.goto(path);
    const edit = async (text: string) => {
      await page.getByRole("button", { name: "Edit", exact: true }).click();
      await page.getByLabel("Credit warnings").fill(text);
      await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
    };
    await edit("20\n5");
    expect(await warnings()).toEqual([20, 5]);
    await problems().getByText("You are warned at 20.00.").waitFor();
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByText("20.00, 5.00").waitFor();
    await edit("");
    expect(await warnings()).toBeNull();
    await problems().waitFor({ state: "detached" });
  });

  test("A budget that is nearly used is named on the pages of its organization.", async () => {
    const own = await makeOrganization(service, "10");
    const path = `/organizations/${own.id}`;
    const terms = { name: "web team", window: "month", amount: 5 };
    const made = await admin().call<{ id: string }>("POST", `${path}/budgets`, terms);
    const body = { model: "sandbox/story", messages: [{ role: "user", content: "a" }], max_tokens: 100 };
    expect((await send(service, "/v1/chat/completions", own.token, body)).status).toBe(200);
    const budget = `${path}/budgets/${made.body.id}`;
    const { body: spent } = await admin().call<{ current: { spent: number } }>("GET", budget);
    await admin().call("PATCH", budget, { amount: spent.current.spent });
    await page.goto(path);
    await problems().getByText("1 budget is used up or nearly so").waitFor();
    await problems()
      .getByRole("link", { name: /^web team: Used up/ })
      .click();
    await page.getByRole("region", { name: "Budgets" }).getByText("web team").waitFor();
    expect(operator.pageErrors).toEqual([]);
  });
});
