import { readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type AdminClient, firstToken, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, settled, signIn, type Visit, visit } from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";

/** Each attempt adds a request to the lists, so polling is slow. */
const SELDOM = { interval: 250 };
/** IDs that the links of a list lead to. */
const idsOf = (links: { pathname: string }[]) => links.map(({ pathname }) => pathname.split("/").at(-1));
const inMicroCredits = (credits: number | string) => Math.round(Number(credits) * 1_000_000);

interface RequestOfList {
  id: string;
  request_id: string;
  model: string;
  charged: number;
}

/** Actions that story.test.ts leaves out, on SQLite. Each result is checked through the API. */
describe.skipIf(!hasBrowser)("the operator", () => {
  let browser: Browser;
  let service: RunningService;
  let admin: AdminClient;
  let organization: Organization;
  let operating: Visit;
  let page: Page;

  const row = (text: string) => page.getByRole("row").filter({ hasText: text });
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const press = (name: string) => button(name).click();
  /** Clicks the button of the dialog, and waits until the dialog closes. */
  const confirm = async (name: string) => {
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name, exact: true }).click();
    await dialog.waitFor({ state: "detached" });
  };
  const statement = () => page.getByRole("region", { name: "Statement" });
  const tab = (name: string) =>
    page
      .getByRole("navigation", { name: /^Sections of / })
      .getByRole("link", { name })
      .click();
  const available = async () => {
    const { body } = await admin.call<{ credits: { available: number } }>("GET", `/organizations/${organization.id}`);
    return body.credits.available;
  };
  const listOf = async <T>(path: string) => (await admin.call<{ data: T[] }>("GET", path)).body.data;
  const ask = (token: string, content = "Good morning", model = "sandbox/echo") =>
    send(service, "/v1/chat/completions", token, { model, messages: [{ role: "user", content }] });
  const statusOf = async (token: string) => (await ask(token)).status;

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    const token = await adminTokenOf(service);
    admin = operator(service);
    organization = await makeOrganization(service, "50", { name: "web app" });
    operating = await visit(browser, service);
    page = operating.page;
    await signIn(page, token);
    for (const [content, model] of [
      ["Good morning", "sandbox/echo"],
      ["reset after 3 tokens", "sandbox/fault"],
    ]) {
      await (await ask(organization.token, content, model)).text();
    }
    // A request of another organization, which the filter must exclude.
    await (await ask(firstToken(service))).text();
    // So that no section is replaced under the first click.
    await page.goto(`/organizations/${organization.id}`, { waitUntil: "networkidle" });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test("The operator adds an allowance, which grants immediately, and ends it.", async () => {
    const before = await available();
    await press("Add allowance");
    await page.getByLabel("Credits per month").fill("10");
    await page.getByLabel("Unspent credits at the end of a month").selectOption("stays");
    await confirm("Add allowance");
    await row("Carry over").getByText("active").waitFor();
    await tab("Statement");
    await statement().getByText("+10.00", { exact: true }).waitFor();
    await tab("Credits");
    expect(await available()).toBe(before + 10);
    await press("End allowance");
    await page.getByText("No credits are granted on").waitFor();
    await confirm("End allowance");
    await row("Carry over").getByText("ended").waitFor();
    await button("End allowance").waitFor({ state: "detached" });
    const allowances = await listOf(`/organizations/${organization.id}/allowances`);
    expect(allowances).toMatchObject([{ amount: 10, lapses: false, ended_at: expect.any(String) }]);
    expect(await available()).toBe(before + 10);
  });

  test("The operator revokes an amount of all credits, and all credits of one grant.", async () => {
    const path = `/organizations/${organization.id}/grants`;
    await admin.call("POST", path, { amount: 7, reference: "a mistake" });
    const before = await available();
    await press("Revoke");
    await page.getByRole("dialog").getByLabel("Credits").fill("2.5");
    await page.getByRole("dialog").getByLabel("Note").fill("half of it");
    await confirm("Revoke credits");
    await tab("Statement");
    await statement().getByRole("row").filter({ hasText: "half of it" }).getByText("−2.5").waitFor();
    await tab("Credits");
    expect(await available()).toBeCloseTo(before - 2.5, 6);
    await page.reload();
    await press("Revoke credits of a mistake");
    await page.getByRole("radio", { name: "All" }).check();
    await confirm("Revoke credits");
    await button("Revoke credits of a mistake").waitFor({ state: "detached" });
    const grants = await listOf<{ reference: string | null; remaining: number }>(path);
    expect(grants.find(({ reference }) => reference === "a mistake")?.remaining).toBe(0);
  });

  test("The operator refunds the cost of a request, and no more.", async () => {
    const query = `/requests?organization_id=${organization.id}&model=sandbox%2Fecho`;
    const [charged] = await listOf<RequestOfList>(query);
    const before = await available();
    const dialog = page.getByRole("dialog");
    await press("Refund");
    await dialog.getByLabel("Credits", { exact: true }).fill("1");
    await dialog.getByLabel("Request").fill(`${service.url}/requests/${charged?.id}?status=complete`);
    await dialog.getByRole("button", { name: "Refund credits" }).click();
    await dialog.getByRole("alert").getByText("Invalid request").waitFor();
    await dialog.getByLabel("Credits", { exact: true }).fill(charged?.charged.toFixed(6) ?? "");
    await dialog.getByLabel("Note").fill("a bad answer");
    await confirm("Refund credits");
    await row("Refund").first().waitFor();
    await tab("Statement");
    await statement().getByText("a bad answer").waitFor();
    expect(inMicroCredits(await available())).toBe(inMicroCredits(before) + inMicroCredits(charged?.charged ?? 0));
    await page.goto(`/requests/${charged?.id}`);
    await dialog.getByText("by an operator").waitFor();
  });

  test("The operator filters the statement by kind and by days.", async () => {
    await page.goto(`/organizations/${organization.id}?tab=statement`);
    await settled(page);
    const kinds = () => statement().locator("tbody .badge").allTextContents();
    const everyKind = new Set(["Granted", "Charged", "Revoked", "Refunded"]);
    await eventually(async () => new Set(await kinds())).toEqual(everyKind);
    await page.getByLabel("Kind").selectOption("revoke");
    await eventually(kinds).toEqual(["Revoked", "Revoked"]);
    await page.getByLabel("Kind").selectOption("");
    await eventually(async () => new Set(await kinds())).toEqual(everyKind);
    await page.getByLabel("Period (UTC)").selectOption("dates");
    await page.getByLabel("From", { exact: true }).fill("2025-12-01");
    await page.getByLabel("To", { exact: true }).fill("2026-01-01");
    await page.getByText("No entries in this period").waitFor();
    const opening = page.locator(".statement-totals .facts > div", { hasText: "Opening balance" });
    await opening.getByText("0.00", { exact: true }).waitFor();
  });

  test("The exported statement adds up to the balance.", async () => {
    await page.getByLabel("From", { exact: true }).fill("2020-01-01");
    await page.getByLabel("To", { exact: true }).fill("2090-12-31");
    await statement().getByText("half of it").waitFor();
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "CSV" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toBe("test-2020-01-01-to-2090-12-31-statement.csv");
    const text = await readFile(await download.path(), "utf8");
    const [heads = [], ...lines] = text
      .trimEnd()
      .split("\r\n")
      .map((line) => line.split(","));
    const at = (name: string) => heads.indexOf(name);
    const totals = lines.filter((cells) => cells[at("kind")]?.startsWith("total_"));
    const entries = lines.slice(1, -1 - totals.length);
    expect(lines[0]?.[at("kind")]).toBe("opening");
    expect(lines.at(-1)?.[at("kind")]).toBe("closing");
    expect(entries.length).toBeGreaterThan(6);
    let balance = inMicroCredits(lines[0]?.[at("balance")] ?? "");
    for (const entry of entries) {
      balance += inMicroCredits(entry[at("credits")] ?? "");
      expect(inMicroCredits(entry[at("balance")] ?? "")).toBe(balance);
    }
    expect(inMicroCredits(lines.at(-1)?.[at("balance")] ?? "")).toBe(balance);
    expect(balance).toBe(inMicroCredits(await available()));
    expect(totals.reduce((sum, cells) => sum + inMicroCredits(cells.at(-1) ?? ""), 0)).toBe(balance);
  });

  test("The exported statement has the active filter, and each line has the balance after it.", async () => {
    await page.getByLabel("Kind").selectOption("revoke");
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "CSV" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toBe("test-2020-01-01-to-2090-12-31-statement-revoke.csv");
    const lines = (await readFile(await download.path(), "utf8")).trimEnd().split("\r\n");
    expect(lines.map((line) => line.split(",")[1])).toEqual([
      ...["kind", "opening", "revoke", "revoke", "total_revoke", "closing"],
    ]);
    expect(inMicroCredits(lines.at(-1)?.split(",")[3] ?? "")).toBe(inMicroCredits(await available()));
  });

  test("The operator rotates a token: the new one is shown once, and the old one works during the overlap.", async () => {
    await page.goto("/tokens");
    const dialog = page.getByRole("dialog");
    await press("Rotate web app");
    await dialog.getByLabel("Overlap").selectOption({ label: "5 minutes" });
    await dialog.getByRole("button", { name: "Rotate token" }).click();
    await dialog.getByText("The old token works until").waitFor();
    const renewed = (await dialog.locator(".secret").textContent()) ?? "";
    await confirm("Done");
    await eventually(() => button("Rotate web app").count()).toBe(2);
    expect(await page.content()).not.toContain(renewed);
    expect([await statusOf(organization.token), await statusOf(renewed)]).toEqual([200, 200]);
    await row("web app")
      .filter({ hasText: /in \d+ min/ })
      .getByRole("button", { name: "Revoke web app" })
      .click();
    await confirm("Revoke token");
    await eventually(() => statusOf(organization.token), SELDOM).toBe(401);
    await eventually(() => button("Rotate web app").count()).toBe(1);
    await press("Rotate web app");
    await dialog.getByLabel("Overlap").selectOption("0");
    await dialog.getByRole("button", { name: "Rotate token" }).click();
    await dialog.getByText("The old token has stopped working.").waitFor();
    organization.token = (await dialog.locator(".secret").textContent()) ?? "";
    await confirm("Done");
    await eventually(() => statusOf(renewed), SELDOM).toBe(401);
    expect(await statusOf(organization.token)).toBe(200);
  });

  test("The operator finds requests by organization, token, model, status, ID and time.", async () => {
    const requests = await listOf<RequestOfList>(`/requests?organization_id=${organization.id}`);
    /** Waits until the URL has the filters and the list shows the requests. */
    const shows = async (filters: Record<string, string>, expected: readonly RequestOfList[]) => {
      await eventually(() => Object.fromEntries(new URL(page.url()).searchParams)).toEqual(filters);
      await eventually(() => page.locator("tbody a").evaluateAll(idsOf)).toEqual(expected.map(({ id }) => id));
    };
    const of = { organization_id: organization.id };
    const echo = { ...of, model: "sandbox/echo" };
    await page.goto("/requests");
    await shows({}, await listOf<RequestOfList>("/requests"));
    await pick(page, "Organization", "Test");
    await shows(of, requests);
    await page.getByLabel("Status").selectOption("failed");
    await shows(
      { ...of, status: "failed" },
      requests.filter(({ model }) => model === "sandbox/fault"),
    );
    await row("sandbox/fault").getByText("Failed").waitFor();
    await page.getByLabel("Status").selectOption("");
    await page.getByLabel("Model").selectOption("sandbox/echo");
    const asked = requests.filter(({ model }) => model === "sandbox/echo");
    await shows(echo, asked);
    await page.getByLabel("Period").selectOption("1h");
    await shows({ ...echo, period: "1h" }, asked);
    await page.reload();
    await shows({ ...echo, period: "1h" }, asked);
    const [token] = await listOf<{ id: string }>(`/tokens?organization_id=${organization.id}&status=active`);
    await pick(page, "Token", token?.id ?? "");
    const newest = asked.slice(0, 1);
    await shows({ ...echo, period: "1h", token_id: token?.id ?? "" }, newest);
    await press("Clear filters");
    await shows({}, await listOf<RequestOfList>("/requests"));
    const oldest = asked.slice(-1);
    await page.getByLabel("Request ID").fill(oldest[0]?.request_id ?? "");
    await shows({ request_id: oldest[0]?.request_id ?? "" }, oldest);
    await page.getByLabel("Request ID").fill("nothing like it ");
    await page.getByText("No matching requests").waitFor();
    await shows({ request_id: "nothing like it" }, []);
    // The trailing space stays while the user is typing.
    expect(await page.getByLabel("Request ID").inputValue()).toBe("nothing like it ");
  });

  test("The operator limits an organization, pauses it and resumes it.", async () => {
    const status = () => statusOf(organization.token);
    await page.goto(`/organizations/${organization.id}`);
    await press("Edit");
    await page.getByLabel("Name", { exact: true }).fill("Renamed");
    await page.getByLabel("Requests per minute").fill("1");
    await confirm("Save");
    await page.getByRole("heading", { name: "Renamed", level: 1 }).waitFor();
    await tab("Settings");
    await page.getByText("1 request per minute").waitFor();
    await eventually(status, SELDOM).toBe(429);
    await press("Edit");
    await page.getByLabel("Requests per minute").fill("");
    await confirm("Save");
    await page.getByText("Default", { exact: true }).waitFor();
    await eventually(status, SELDOM).toBe(200);
    await press("Pause");
    await confirm("Pause");
    await eventually(status, SELDOM).toBe(403);
    await press("Resume");
    await confirm("Resume");
    await page.getByText("new requests are refused with 403").waitFor({ state: "detached" });
    await eventually(status, SELDOM).toBe(200);
    expect(operating.pageErrors).toEqual([]);
  });
});
