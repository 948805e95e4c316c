import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import {
  adminTokenOf,
  eventually,
  pick,
  problemsOf,
  settled,
  signIn,
  type Visit,
  visit,
  WINDOWS,
} from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";

describe.skipIf(!hasBrowser)("the console in trouble", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let visitor: Visit;
  let page: Page;
  let admin: string;

  beforeAll(async () => {
    const config = {
      providers: [{ id: "local", kind: "sandbox" }],
      models: [
        { id: "a-expensive", price: { input: 900, output: 900 }, routes: [{ provider: "local", model: "echo" }] },
        { id: "b-cheap", price: { input: 1, output: 1 }, routes: [{ provider: "local", model: "echo" }] },
      ],
    };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    admin = await adminTokenOf(service);
    organization = await makeOrganization(service, "50");
    visitor = await visit(browser, service);
    page = visitor.page;
    await signIn(page, admin);
  });
  beforeEach(async () => {
    await page.context().clearCookies();
    await page.setViewportSize(WINDOWS.wide);
    await signIn(page, admin);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  test("A session that ends is renewed over the form, and nothing that was typed is lost.", async () => {
    await page.goto(`/organizations/${organization.id}`);
    await settled(page);
    await page.getByRole("button", { name: "Grant credits" }).click();
    const form = page.getByRole("dialog", { name: "Grant credits" });
    await form.getByLabel("Credits", { exact: true }).fill("12.5");
    await form.getByLabel("Reference").fill("invoice 7");
    await page.context().clearCookies();
    await form.getByRole("button", { name: "Grant credits" }).click();
    const again = page.getByRole("dialog", { name: "Sign in to continue" });
    await again.waitFor();
    expect(await problemsOf(visitor, "session ended")).toEqual([]);
    await page.keyboard.press("Escape");
    await again.getByLabel("Token").fill("tg-admin-wrong");
    await page.keyboard.press("Enter");
    await again.getByText("invalid_token").waitFor();
    await again.getByLabel("Token").fill(admin);
    await page.keyboard.press("Enter");
    await again.waitFor({ state: "detached" });
    expect(await form.getByLabel("Credits", { exact: true }).inputValue()).toBe("12.5");
    await form.getByRole("button", { name: "Grant credits" }).click();
    await form.waitFor({ state: "detached" });
    await page.getByText("62.50").first().waitFor();
    expect(await page.getByText("Not signed in").count()).toBe(0);
  });

  test("A sign-in of another person loads the console again, without the input of the first one.", async () => {
    const member = await makeOrganization(service, "5", { scopes: ["console:read", "chat.completions:write"] });
    await page.goto(`/organizations/${organization.id}`);
    await page.getByRole("button", { name: "Grant credits" }).click();
    await page.getByLabel("Credits", { exact: true }).fill("99");
    await page.context().clearCookies();
    await page.getByRole("dialog").getByRole("button", { name: "Grant credits" }).click();
    const again = page.getByRole("dialog", { name: "Sign in to continue" });
    await again.getByLabel("Token").fill(member.token);
    await page.keyboard.press("Enter");
    await page.getByText("This page does not exist").waitFor();
    expect(await page.getByRole("dialog").count()).toBe(0);
  });

  test("An error stays until the service answers again, however often it is tried.", async () => {
    await page.route("**/admin/v1/requests?*", (route) => route.fulfill({ status: 503, body: "{}" }));
    await page.goto("/requests");
    const alert = page.getByRole("main").getByRole("alert");
    await alert.getByText("Service error").waitFor();
    await page.evaluate(`
      globalThis.gaps = 0;
      new MutationObserver(() => { if (document.querySelector("main [role=alert]") === null) globalThis.gaps += 1; })
        .observe(document.querySelector("main"), { childList: true, subtree: true });
    `);
    let tried = 0;
    page.on("request", (request) => {
      if (request.url().includes("/admin/v1/requests?")) tried += 1;
    });
    await eventually(() => tried).toBeGreaterThan(4);
    expect(await page.evaluate("globalThis.gaps")).toBe(0);
    await page.unroute("**/admin/v1/requests?*");
    await alert.waitFor({ state: "detached" });
    await page.getByText("No requests yet").waitFor();
  });

  /** Makes requests to a path fail, with a status that the console does not retry by itself. Returns what ends that. */
  async function failing(path: string, isMeant: (query: URLSearchParams) => boolean = () => true) {
    const isFailed = (url: URL) => url.pathname === `/admin/v1${path}` && isMeant(url.searchParams);
    await page.route(isFailed, (route) => route.fulfill({ status: 400, body: "{}" }));
    return () => page.unroute(isFailed);
  }

  test("A search that fails says so, and finds on another try.", async () => {
    const mend = await failing("/search");
    await page.keyboard.press("Control+k");
    await page.keyboard.type(organization.id);
    const dialog = page.getByRole("dialog", { name: "Go to" });
    await dialog.getByRole("alert").getByText("Invalid request").waitFor();
    await mend();
    await dialog.getByRole("button", { name: "Try again" }).click();
    await dialog.getByRole("option", { name: organization.id }).waitFor();
    expect(await dialog.getByRole("alert").count()).toBe(0);
  });

  test("The overview says which figures failed to load, and loads them on another try.", async () => {
    await send(service, "/v1/chat/completions", organization.token, {
      model: "b-cheap",
      messages: [{ role: "user", content: "Hello" }],
    });
    const today = new Date().toISOString().slice(0, 10);
    const mend = await Promise.all([
      failing("/requests/sums"),
      failing("/overview", (query) => (query.get("to") ?? today) < today),
    ]);
    await page.goto("/?period=1");
    const main = page.getByRole("main");
    await main.getByText("No comparison available").first().waitFor();
    await main.getByRole("alert").getByText("Invalid request").waitFor();
    await Promise.all(mend.map((end) => end()));
    await main.getByRole("button", { name: "Try again" }).click();
    await main.getByRole("group", { name: /^Credits charged per hour/ }).waitFor();
    await page.reload();
    await main.getByText("None in the previous period").first().waitFor();
  });

  test("The dialog of a new token says that the first request cannot be shown, and waits for it after that.", async () => {
    const mend = await failing("/requests", (query) => query.get("limit") === "1");
    await page.goto(`/organizations/${organization.id}?tab=tokens`);
    await page.getByRole("button", { name: "Create token" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill("first");
    await dialog.getByRole("button", { name: "Create token" }).click();
    await dialog.getByRole("alert").getByText("Invalid request").waitFor();
    expect(await dialog.getByText("Waiting for a request").count()).toBe(0);
    await mend();
    await dialog.getByText("Waiting for a request with this token").waitFor();
    expect(await dialog.getByRole("alert").count()).toBe(0);
    await dialog.getByRole("button", { name: "Done" }).click();
  });

  test("A path without a page is a page of the console that leads back.", async () => {
    const answer = await page.goto("/nope");
    expect(answer?.status()).toBe(404);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
    await page.getByRole("link", { name: "Go to the overview" }).click();
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  });

  test("The playground starts with the cheapest model, and says that it does not know the one in the address.", async () => {
    const model = page.getByLabel("Model", { exact: true });
    await page.goto("/playground");
    await eventually(() => model.inputValue()).toBe("b-cheap");
    await page.goto("/playground?model=does-not-exist");
    await page.getByText("does-not-exist is not a model that you can use").waitFor();
    expect(await model.inputValue()).toBe("");
    await page.getByLabel("Message", { exact: true }).fill("Hello");
    await pick(page, "Charged to", organization.id);
    const sendButton = page.getByRole("button", { name: "Send", exact: true });
    expect(await sendButton.isDisabled()).toBe(true);
    await model.selectOption("b-cheap");
    await eventually(() => sendButton.isEnabled()).toBe(true);
    await page.getByText("is not a model that you can use").waitFor({ state: "detached" });
  });

  test("A failed request shows its end, its duration, what it cost and what to do.", async () => {
    const body = { model: "sandbox/fault", messages: [{ role: "user", content: "status 500" }] };
    const answer = await send(service, "/v1/chat/completions", organization.token, body);
    expect(answer.status).toBe(502);
    await page.goto(`/requests/${answer.headers.get("x-request-id")}`);
    const panel = page.getByRole("dialog");
    await panel.getByText("Nothing was charged. The provider failed. Send the request again").waitFor();
    const value = (name: string) =>
      panel.locator(".facts > div", { has: page.getByText(name, { exact: true }) }).locator("dd");
    expect(await value("Ended").innerText()).toMatch(/^\w{3} \d+, \d{4}, \d\d:\d\d:\d\d UTC$/);
    expect(await value("Duration").innerText()).toMatch(/^\d+ ms$|^\d\.\d\d s$/);
  });
});
