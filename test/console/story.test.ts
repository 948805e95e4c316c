import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, settled, signIn, type Visit, visit } from "../support/console.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { type RunningService, send, startService } from "../support/service.ts";

/** Texts that would do harm if they were rendered as HTML. */
const NAME = `Northwind <img src=x onerror="document.title='broken'">`;
const MARKUP = `**Bold** <script>document.title="broken"</script> <img src=x onerror="document.title='broken'"> [x](javascript:alert(1))`;
const ECHO = { model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] };

describe.skipIf(!hasBrowser)("the console", () => {
  let browser: Browser;
  let database: TestDatabase | undefined;
  let service: RunningService;
  let operator: Visit;
  let page: Page;
  let secret: string;
  /** ID of a request whose prompt and answer are stored. */
  let keptId: string;
  const row = (text: string) => page.getByRole("row").filter({ hasText: text });

  beforeAll(async () => {
    // The pages cannot tell the stores apart: the tests of the API compare them.
    if (hasPostgres) database = await createTestDatabase();
    [browser, service] = await Promise.all([launchBrowser(), startService({ databaseUrl: database?.url })]);
    operator = await visit(browser, service);
    page = operator.page;
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await database?.drop();
  });

  test("The operator signs in with the token of the first start and with no other.", async () => {
    await page.goto("/");
    await page.getByLabel("Token").fill("tg-admin-wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("invalid_token").waitFor();
    await signIn(page, await adminTokenOf(service));
    await page.getByText("No requests yet").waitFor();
    const [cookie] = await page.context().cookies();
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  });

  test("The operator creates an organization, whose name is shown as text.", async () => {
    await page.getByRole("link", { name: "Organizations" }).click();
    await page.getByRole("button", { name: "Create organization" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Create organization" }).click();
    await dialog.getByText("Enter a name.").waitFor();
    await dialog.getByLabel("Name").fill(NAME);
    await dialog.getByRole("button", { name: "Create organization" }).click();
    await page.getByRole("heading", { name: NAME, level: 1 }).waitFor();
    expect(await page.locator("img").count()).toBe(0);
    await page.getByText("No credits yet").waitFor();
  });

  test("The operator grants credits.", async () => {
    await page.getByRole("button", { name: "Grant credits" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Credits", { exact: true }).fill("25");
    await dialog.getByLabel("Reference").fill("invoice <7>");
    await dialog.getByRole("button", { name: "Grant credits" }).click();
    await row("invoice <7>").getByText("active").waitFor();
    await page.locator(".tile", { hasText: "Available" }).getByText("25.00").waitFor();
    await page.getByRole("link", { name: "Statement", exact: true }).click();
    await page.getByRole("region", { name: "Statement" }).getByText("+25.00", { exact: true }).waitFor();
  });

  test("The operator creates a token, which is shown once.", async () => {
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await page.getByRole("button", { name: "Create token" }).click();
    const dialog = page.getByRole("dialog");
    await pick(dialog, "Organization", NAME);
    await dialog.getByLabel("Name").fill("web <b>app</b>");
    expect(await dialog.getByLabel("Sign in to the console").isChecked()).toBe(false);
    await dialog.getByLabel("Sign in to the console").check();
    await dialog.getByRole("button", { name: "Create token" }).click();
    await dialog.getByText("You won't see it again").waitFor();
    secret = (await dialog.locator(".secret").textContent()) ?? "";
    expect(secret).toMatch(/^sk-tg-[0-9A-Za-z]{49}$/);
    expect(await dialog.locator(".code").textContent()).toContain(secret);
    await dialog.getByRole("button", { name: "Done" }).click();
    await dialog.waitFor({ state: "detached" });
    await row("web <b>app</b>").getByText("never").first().waitFor();
    expect(await page.content()).not.toContain(secret);
  });

  test("A new request appears in the list without a reload and has details.", async () => {
    await page.getByRole("link", { name: "Requests" }).first().click();
    await page.getByText("No requests yet").waitFor();
    const answer = await send(service, "/v1/chat/completions", secret, ECHO);
    const { usage } = (await answer.json()) as { usage: { cost: number } };
    // The list refreshes by itself.
    await row("sandbox/echo").getByText("Complete").waitFor();
    await row("sandbox/echo").getByRole("link").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(`${usage.cost} credits`).waitFor();
    await dialog.getByText(answer.headers.get("x-request-id") ?? "").waitFor();
    await dialog.getByText("not stored for this organization").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  });

  test("The spent credits rise with each request.", async () => {
    await page.getByRole("link", { name: "Organizations" }).click();
    await page.getByRole("link", { name: NAME }).click();
    const used = page.locator(".tile", { hasText: "Spent" }).locator(".figure");
    await page.getByRole("link", { name: "Statement", exact: true }).click();
    await page.getByRole("region", { name: "Statement" }).getByText("Charged", { exact: true }).first().waitFor();
    const figure = async () => Number(await used.textContent());
    await eventually(figure).toBeGreaterThan(0);
    const before = await figure();
    await send(service, "/v1/chat/completions", secret, ECHO);
    await eventually(figure).toBeGreaterThan(before);
  });

  test("Prompts and answers are stored after a confirmation and shown as text.", async () => {
    await page.getByRole("link", { name: "Settings" }).click();
    const section = page.locator(".card", { hasText: "Prompts and answers" });
    await section.getByText("Not stored", { exact: true }).waitFor();
    await section.getByRole("button", { name: "Enable storage" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Inform the users").waitFor();
    await dialog.getByRole("button", { name: "Enable storage" }).click();
    await section.getByText("stored for 30 days").waitFor();
    // The change takes effect within a second.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const messages = [{ role: "user", content: MARKUP, name: "<b>x</b>" }];
    const answer = await send(service, "/v1/chat/completions", secret, { ...ECHO, messages, instructions: MARKUP });
    keptId = answer.headers.get("x-request-id") ?? "";
    await page.goto(`/requests?request_id=${keptId}`);
    await row("sandbox/echo").getByRole("link").click();
    await dialog.getByRole("button", { name: "Show prompt and answer" }).click();
    const conversation = dialog.getByRole("region", { name: "Conversation" });
    await conversation.getByText(/^Stored until/).waitFor();
    expect(await conversation.locator("p", { hasText: MARKUP }).count()).toBe(2);
    expect(await conversation.locator(".markdown strong").textContent()).toBe("Bold");
    expect(await conversation.locator("script, img, a, b").count()).toBe(0);
    expect(await page.title()).toBe("Requests · Tollgate");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("link", { name: "Audit log", exact: true }).click();
    await row("Prompts and answers viewed").first().getByText("Operator").waitFor();
  });

  test("The operator talks to a model in the playground and stops an answer.", async () => {
    await page.getByRole("link", { name: "Playground" }).first().click();
    await pick(page, "Charged to", NAME);
    await page.getByLabel("Model", { exact: true }).selectOption("sandbox/echo");
    await page.getByLabel("Message", { exact: true }).fill(MARKUP);
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const log = page.getByRole("log", { name: "Conversation" });
    await page.getByText("are stored for 30 days and can be read by the operator").waitFor();
    await log.getByText(/tokens out · .* credits · first token after/).waitFor();
    expect(await log.locator(".answer strong").textContent()).toBe("Bold");
    expect(await log.locator("script, .answer a").count()).toBe(0);
    await page.getByLabel("Model", { exact: true }).selectOption("sandbox/fault");
    await page.getByLabel("Message", { exact: true }).fill("silence after 5 tokens 60s");
    await page.keyboard.press("Enter");
    await eventually(() => log.locator(".answer").nth(1).textContent()).not.toBe("");
    await page.getByRole("button", { name: "Stop" }).click();
    await log.getByText("Stopped: tokens generated so far are charged").waitFor();
    expect(await page.title()).toBe("Playground · Tollgate");
  });

  test("The operator edits a question, sends it again, and views the code.", async () => {
    const log = page.getByRole("log", { name: "Conversation" });
    await page.getByLabel("Model", { exact: true }).selectOption("sandbox/echo");
    await log.getByRole("button", { name: "Edit and send again" }).first().click();
    await log.getByLabel("Edit message").fill("Good evening");
    await log.getByRole("button", { name: "Send again", exact: true }).click();
    const answer = log.locator(".answer", { hasText: "Good evening" });
    await answer.getByText(/first token after/).waitFor();
    expect(await log.locator(".question").count()).toBe(1);
    expect(await log.locator(".answer .markdown").textContent()).toBe("Good evening");
    await page.getByRole("button", { name: "View code" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("radio", { name: "Python" }).check();
    const code = dialog.locator(".code", { hasText: "from openai import" });
    expect(await code.textContent()).toContain("Good evening");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  });

  test("The playground sends no cookie with a completion and stores nothing in the browser.", async () => {
    const asked = page.waitForRequest("**/v1/chat/completions");
    await page.getByLabel("Message", { exact: true }).fill("Hello");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const headers = await (await asked).allHeaders();
    expect(headers.cookie).toBeUndefined();
    expect(headers.authorization).toMatch(/^Bearer /);
    const log = page.getByRole("log", { name: "Conversation" });
    await log
      .locator(".answer", { hasText: "Hello" })
      .getByText(/first token after/)
      .waitFor();
    expect(await page.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
  });

  test("A member sees only the data of their own organization.", async () => {
    const member = await visit(browser, service);
    await signIn(member.page, secret);
    expect(await member.page.getByRole("navigation").getByRole("link").allTextContents()).toEqual([
      "Overview",
      "Credits",
      "Statements",
      "Tokens",
      "Requests",
      "Models",
      "Playground",
      "API reference",
    ]);
    await member.page.getByText(NAME).first().waitFor();
    await member.page.goto("/organizations");
    await member.page.getByText("This page does not exist").waitFor();
    await member.page.goto("/tokens");
    await member.page.getByRole("row").filter({ hasText: "web <b>app</b>" }).getByText("active").waitFor();
    expect(await member.page.getByText("first token").count()).toBe(0);
    expect(await member.page.getByRole("button", { name: /Create|Rotate|Revoke/ }).count()).toBe(0);
    await member.page.goto(`/requests?request_id=${keptId}`);
    await member.page.getByRole("table").getByRole("link", { name: "sandbox/echo" }).click();
    await member.page
      .getByRole("dialog")
      .getByText("Only operators and auditors of the service can view them")
      .waitFor();
    expect(await member.page.getByRole("button", { name: "Show prompt and answer" }).count()).toBe(0);
    await member.page.goto("/credits");
    await member.page.getByText("invoice <7>").first().waitFor();
    expect(await member.page.getByRole("button", { name: "Grant credits" }).count()).toBe(0);
    await settled(member.page);
    expect(member.pageErrors).toEqual([]);
    await member.close();
  });

  test("A revoked token stops working.", async () => {
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await row("web <b>app</b>").getByRole("button", { name: "Revoke" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("Requests with this token are refused").waitFor();
    await dialog.getByRole("button", { name: "Revoke token" }).click();
    await row("web <b>app</b>").getByText("revoked").waitFor();
    const refused = async () => (await send(service, "/v1/chat/completions", secret, ECHO)).status;
    await eventually(refused).toBe(401);
  });

  test("The operator disables storage and deletes the stored data.", async () => {
    await page.getByRole("link", { name: "Organizations" }).click();
    await page.getByRole("link", { name: NAME }).click();
    await page.getByRole("link", { name: "Settings" }).click();
    const section = page.locator(".card", { hasText: "Prompts and answers" });
    await section.getByRole("button", { name: "Disable storage" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("until you delete it").waitFor();
    await dialog.getByRole("button", { name: "Disable storage" }).click();
    await section.getByText("Not stored", { exact: true }).waitFor();
    await section.getByRole("button", { name: "Delete stored data" }).click();
    await dialog.getByRole("button", { name: "Delete" }).click();
    await section.getByText(/^[1-9]\d* deleted\.$/).waitFor();
  });

  test("The operator pauses the organization and signs out, and every page then asks for a sign-in.", async () => {
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
    await page.getByText("new requests are refused with 403").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.goto("/tokens");
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await signIn(page, await adminTokenOf(service));
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(operator.pageErrors).toEqual([]);
  });
});
