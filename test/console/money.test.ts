import type { Browser, Locator, Page, Request } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, signIn, visit } from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, startService } from "../support/service.ts";

const KEY = /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/;

/** Forms that change credits and tokens: they do exactly what they show, and only once. */
describe.skipIf(!hasBrowser)("the forms of the console", () => {
  let browser: Browser;
  let service: RunningService;
  let admin: AdminClient;
  let organization: Organization;
  let page: Page;
  let dialog: Locator;
  /** Changes that the page sent, the latest last. */
  let sent: Request[];

  const button = (name: string) => dialog.getByRole("button", { name, exact: true });
  const open = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const closed = () => dialog.waitFor({ state: "detached" });
  const available = async () => {
    const path = `/organizations/${organization.id}`;
    return (await admin.call<{ credits: { available: number } }>("GET", path)).body.credits.available;
  };
  const keysOf = (requests: Request[]) => requests.map((request) => request.headers()["idempotency-key"]);

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    ({ page } = await visit(browser, service));
    await signIn(page, await adminTokenOf(service));
    admin = operator(service);
    dialog = page.getByRole("dialog");
    page.on("request", (request) => {
      if (request.method() !== "GET") sent.push(request);
    });
  });
  beforeEach(async () => {
    organization = await makeOrganization(service, "810", { name: "web app" });
    sent = [];
    await page.goto(`/organizations/${organization.id}`);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test("A grant of 50,00 is refused, and the amount is shown before it is booked.", async () => {
    await open("Grant credits");
    await dialog.getByLabel("Credits", { exact: true }).fill("50,00");
    await dialog.getByText("Ambiguous: use a point for decimals, as in 50.00.").waitFor();
    await button("Grant credits").click();
    await dialog.getByLabel("Credits", { exact: true }).fill("1,250.5");
    await dialog.getByRole("status").getByText("Grants 1,250.50 credits to Test.").waitFor();
    expect(sent).toEqual([]);
    await button("Grant credits").click();
    await closed();
    expect(await available()).toBe(810 + 1250.5);
  });

  test("An allowance and a refund show their amounts and refuse ambiguous ones.", async () => {
    await open("Add allowance");
    await dialog.getByLabel("Credits per month").fill("1,250");
    await dialog.getByText("Ambiguous: enter 1250 or 1.250.").waitFor();
    await dialog.getByLabel("Credits per month").fill("1250");
    await dialog.getByText("Grants 1,250.00 credits to Test now and every month.").waitFor();
    await button("Cancel").click();
    await open("Refund");
    await dialog.getByLabel("Credits", { exact: true }).fill("2,5");
    await dialog.getByText("Ambiguous").waitFor();
    await dialog.getByLabel("Credits", { exact: true }).fill("2.5");
    await dialog.getByText("Refunds 2.50 credits to Test.").waitFor();
    await button("Cancel").click();
    expect(sent).toEqual([]);
  });

  test("A revocation above the balance and one without an amount are refused; revoking all is an explicit choice.", async () => {
    await open("Revoke");
    await button("Revoke credits").click();
    await dialog.getByText("Enter an amount.").waitFor();
    await dialog.getByLabel("Credits", { exact: true }).fill("5000000");
    await dialog.getByText("Only 810.00 credits are available.").waitFor();
    await button("Revoke credits").click();
    expect([sent, await available()]).toEqual([[], 810]);
    await dialog.getByLabel("Credits", { exact: true }).fill("10");
    await dialog.getByText("Revokes 10.00 credits of Test. 800.00 credits remain.").waitFor();
    // The balance falls while the form is open: the service refuses the amount.
    const path = `/organizations/${organization.id}/revocations`;
    await admin.call("POST", path, { amount: 805 });
    await button("Revoke credits").click();
    await dialog.getByRole("alert").or(dialog.locator(".field-error")).first().waitFor();
    expect(await available()).toBe(5);
    await dialog.getByRole("radio", { name: "All" }).check();
    await dialog.getByText(/^Revokes all available credits of Test/).waitFor();
    await button("Revoke credits").click();
    await closed();
    expect(await available()).toBe(0);
  });

  test("A retry after a lost answer sends the same key and content and is booked once.", async () => {
    const path = "**/admin/v1/organizations/*/grants";
    await page.route(path, async (route) => {
      if (route.request().method() === "GET") return route.fallback();
      // The service books it, but its answer is lost.
      await route.fetch();
      await route.abort("connectionreset");
    });
    await open("Grant credits");
    await dialog.getByLabel("Credits", { exact: true }).fill("7");
    await dialog.getByLabel("Expires").selectOption("30");
    await button("Grant credits").click();
    await dialog.getByText("You can safely submit it again").waitFor();
    await page.unroute(path);
    await button("Grant credits").click();
    await closed();
    const [first, second] = sent;
    expect(sent).toHaveLength(2);
    expect(keysOf(sent)).toEqual([expect.stringMatching(KEY), keysOf(sent)[0]]);
    expect(second?.postData()).toBe(first?.postData());
    expect(await available()).toBe(817);
    await open("Grant credits");
    await dialog.getByLabel("Credits", { exact: true }).fill("7");
    await button("Grant credits").click();
    await closed();
    expect(new Set(keysOf(sent)).size).toBe(2);
    expect(await available()).toBe(824);
  });

  test("Two clicks in a row send one request.", async () => {
    await open("Grant credits");
    await dialog.getByLabel("Credits", { exact: true }).fill("3");
    // Both clicks happen in one task, before the page renders the first one.
    await button("Grant credits").evaluate((element) => {
      const pressed = element as unknown as { click(): void };
      pressed.click();
      pressed.click();
    });
    await closed();
    expect(sent).toHaveLength(1);
    expect(await available()).toBe(813);
  });

  test("Escape asks before it discards input, however often it is pressed.", async () => {
    await open("Grant credits");
    await dialog.getByLabel("Credits", { exact: true }).fill("12");
    await page.keyboard.press("Escape");
    await button("Keep editing").click();
    expect(await dialog.getByLabel("Credits", { exact: true }).inputValue()).toBe("12");
    for (let times = 0; times < 4; times += 1) await page.keyboard.press("Escape");
    expect(await dialog.getByLabel("Credits", { exact: true }).inputValue()).toBe("12");
    await button("Discard").click();
    await closed();
    await open("Grant credits");
    await page.keyboard.press("Escape");
    await closed();
  });

  test("The settings form sends changed fields only, and a change of another operator stays.", async () => {
    await open("Edit");
    await dialog.getByLabel("Name", { exact: true }).fill("Renamed");
    const limits = { requests_per_minute: 5 };
    await admin.call("PATCH", `/organizations/${organization.id}`, { limits });
    await button("Save").click();
    await closed();
    const { body } = await admin.call("GET", `/organizations/${organization.id}`);
    expect(body).toMatchObject({ name: "Renamed", limits });
  });

  test("A dialog to pause does not turn into one to resume when another operator pauses first.", async () => {
    await open("Pause");
    await admin.call("PATCH", `/organizations/${organization.id}`, { status: "paused" });
    await page.getByText("new requests are refused with 403").waitFor({ state: "attached" });
    await button("Pause").click();
    await closed();
    const { body } = await admin.call("GET", `/organizations/${organization.id}`);
    expect(body.status).toBe("paused");
  });

  test("A secret stays until it is confirmed, despite Escape, clicks, navigation and the end of the session.", async () => {
    await page.goto("/tokens");
    await open("Create token");
    await pick(dialog, "Organization", organization.id);
    await dialog.getByLabel("Name").fill("kept");
    await button("Create token").click();
    const secret = dialog.locator(".secret");
    await secret.waitFor();
    const text = await secret.textContent();
    expect(keysOf(sent)).toEqual([expect.stringMatching(KEY)]);
    for (let times = 0; times < 4; times += 1) await page.keyboard.press("Escape");
    await page.mouse.click(4, 4);
    await dialog.getByText("Copy the token, then click Done.").waitFor();
    expect(await button("Close").count()).toBe(0);
    await page.evaluate("history.pushState(null, '', '/models')");
    await page.getByRole("heading", { name: "Models", level: 1, includeHidden: true }).waitFor();
    await page.context().clearCookies();
    await page.evaluate("history.pushState(null, '', '/requests')");
    await page.getByText("Not signed in").first().waitFor({ state: "attached" });
    expect(await secret.textContent()).toBe(text);
    await button("Done").click();
    // The sign-in waits until the secret is confirmed.
    await page.getByRole("heading", { name: "Sign in to continue" }).waitFor();
    expect(await page.content()).not.toContain(text);
    await signIn(page, await adminTokenOf(service));
  });

  test("A retry whose answer no longer contains the secret says what to do.", async () => {
    await page.goto("/tokens");
    await page.route("**/admin/v1/tokens", async (route) => {
      if (route.request().method() === "GET") return route.fallback();
      await route.fetch();
      await route.abort("connectionreset");
    });
    await open("Create token");
    await pick(dialog, "Organization", organization.id);
    await dialog.getByLabel("Name").fill("without a secret");
    await button("Create token").click();
    await dialog.getByText("You can safely submit it again").waitFor();
    await page.unroute("**/admin/v1/tokens");
    await button("Create token").click();
    await dialog.getByText("Rotate the token to get a new secret, or revoke it.").waitFor();
    expect(await dialog.locator(".secret").count()).toBe(0);
    await button("Done").click();
    await closed();
  });

  test("The playground charges no organization until one is selected, and creates its token with the first message.", async () => {
    const tokensOf = async () => {
      const path = `/tokens?organization_id=${organization.id}`;
      return (await admin.call<{ data: { name: string }[] }>("GET", path)).body.data.map(({ name }) => name);
    };
    await page.goto("/playground?model=sandbox%2Fecho");
    const payer = page.getByRole("combobox", { name: "Charged to" });
    expect([await payer.inputValue(), await payer.getAttribute("placeholder")]).toEqual(["", "Select an organization"]);
    await page.getByRole("button", { name: "Select an organization" }).click();
    await eventually(() => payer.evaluate((field) => field.matches(":focus"))).toBe(true);
    await page.keyboard.press("Escape");
    const message = page.getByLabel("Message", { exact: true });
    await message.fill("Good morning");
    await message.press("Enter");
    expect(await page.getByRole("button", { name: "Send", exact: true }).count()).toBe(0);
    await pick(page, "Charged to", organization.id);
    await page.getByText("The conversation stays on this page").waitFor();
    expect([sent, await tokensOf()]).toEqual([[], ["web app"]]);
    await message.press("Enter");
    await page.getByText(/tokens out · .* credits/).waitFor();
    await eventually(tokensOf).toEqual(["Console playground", "web app"]);
    expect(await available()).toBeLessThan(810);
  });
});
