import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, overflowOf, settled, signIn, type Visit, violationsOf, visit } from "../support/console.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";

const NARROW = { width: 360, height: 780 };
const WIDE = { width: 1440, height: 900 };

describe.skipIf(!hasBrowser)("every page of the console", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let admin: string;
  let paths: string[];

  beforeAll(async () => {
    [browser, service] = await Promise.all([
      launchBrowser(),
      startService({ config: { playground: { openToGuests: true } } }),
    ]);
    admin = await adminTokenOf(service);
    organization = await makeOrganization(service, "50");
    const messages = [{ role: "user", content: "Good morning" }];
    for (const model of ["sandbox/echo", "sandbox/story", "sandbox/fault"]) {
      await send(service, "/v1/chat/completions", organization.token, { model, messages, max_tokens: 40 });
    }
    paths = [
      "/",
      "/?days=7",
      "/organizations",
      `/organizations/${organization.id}`,
      "/tokens",
      "/requests",
      "/requests?status=failed",
      "/models",
      "/models?compare=sandbox%2Fecho%2Csandbox%2Fstory",
      "/models/sandbox/echo",
      "/playground",
      "/changes",
      "/credits",
    ];
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  const problemsOf = async ({ page, mishaps }: Visit, path: string) => {
    await page.goto(path);
    await settled(page);
    const overflow = await overflowOf(page);
    const problems = [...(await violationsOf(page)), ...(overflow > 0 ? [`wider than the window by ${overflow}`] : [])];
    return [...problems, ...mishaps.splice(0)].map((problem) => `${path}: ${problem}`);
  };

  test.each([
    ["light", "wide", WIDE],
    ["dark", "narrow", NARROW],
  ] as const)("is accessible and fits its window, %s and %s", { timeout: 90_000 }, async (colorScheme, _, viewport) => {
    const operator = await visit(browser, service, { colorScheme, viewport });
    const problems = await problemsOf(operator, "/");
    await signIn(operator.page, admin);
    for (const path of paths) problems.push(...(await problemsOf(operator, path)));
    problems.push(...(await dialogProblems(operator.page)));
    await operator.close();
    expect(problems).toEqual([]);
  });

  /** What axe finds in the forms that open over the pages. */
  async function dialogProblems(page: Page): Promise<string[]> {
    const problems: string[] = [];
    const forms: [path: string, button: string][] = [
      ["/organizations", "Create organization"],
      [`/organizations/${organization.id}`, "Grant credits"],
      [`/organizations/${organization.id}`, "Pause"],
      ["/tokens", "Create token"],
      ["/playground", "View code"],
    ];
    for (const [path, button] of forms) {
      await page.goto(path);
      await settled(page);
      await page.getByRole("button", { name: button }).click();
      await page.getByRole("dialog").waitFor();
      problems.push(...(await violationsOf(page)).map((problem) => `${path}, ${button}: ${problem}`));
    }
    return problems;
  }

  test("is there for guests of the playground, with their limits", async () => {
    const guest = await visit(browser, service, { viewport: NARROW });
    const { page } = guest;
    expect(await problemsOf(guest, "/playground")).toEqual([]);
    await page.getByText("You are a guest").waitFor();
    await page.getByLabel("Model", { exact: true }).selectOption("sandbox/echo");
    await page.getByLabel("Message").fill("Good morning");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText(/tokens out · 0 credits/).waitFor();
    await page.goto("/requests");
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await guest.close();
  });
});

describe.skipIf(!hasBrowser)("the console", () => {
  let browser: Browser;
  let service: RunningService;
  let page: Page;

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    const admin = await adminTokenOf(service);
    const token = /sk-tg-[0-9A-Za-z]{49}/.exec(service.output())?.[0] ?? "";
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] };
    await send(service, "/v1/chat/completions", token, body);
    ({ page } = await visit(browser, service, { colorScheme: "light" }));
    await signIn(page, admin);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  const ground = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");

  test("keeps the theme that was chosen, from the first paint on", async () => {
    const light = await ground();
    await page.getByRole("button", { name: /^Theme: system/ }).click();
    await page.getByRole("button", { name: /^Theme: light/ }).click();
    expect(await ground()).not.toBe(light);
    const dark = await ground();
    await page.route("**/assets/*.js", (route) => route.abort());
    await page.reload();
    expect(await ground()).toBe(dark);
    await page.unroute("**/assets/*.js");
    await page.reload();
    await page.getByRole("button", { name: /^Theme: dark/ }).click();
    expect(await ground()).toBe(light);
  });

  test("has charts that are read by keyboard, and as tables", async () => {
    await settled(page);
    const chart = page.getByRole("group", { name: /^Requests a day/ });
    await chart.locator('[tabindex="0"]').focus();
    const told = () => page.evaluate("document.activeElement.getAttribute('aria-label')");
    expect(await told()).toMatch(/: 1 in all, Answered 1$/);
    const today = await told();
    await page.keyboard.press("ArrowLeft");
    expect(await told()).toMatch(/: 0 in all$/);
    await page.keyboard.press("End");
    expect(await told()).toBe(today);
    await page.keyboard.press("Home");
    expect(await told()).not.toBe(today);
    await page.getByText("Show as a table").first().click();
    expect(
      await page
        .getByRole("region", { name: /spent a day.* as a table$/ })
        .getByRole("row")
        .count(),
    ).toBe(31);
  });

  test("is worked by keyboard alone", async () => {
    await page.goto("/organizations");
    await settled(page);
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Skip to content");
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement.id")).toBe("main");
    await page.getByRole("button", { name: "Create organization" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByLabel("Name").focus();
    await page.keyboard.type("Made by keyboard");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Made by keyboard" }).waitFor();
  });

  test("gives the focus back when a dialog closes", async () => {
    await page.goto("/organizations");
    await settled(page);
    const button = page.getByRole("button", { name: "Create organization" });
    await button.click();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Create organization");
  });

  test("says what happened where the service is gone", { timeout: 60_000 }, async () => {
    await page.goto("/models");
    await settled(page);
    await service.end("SIGKILL");
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await page.getByText("The service could not be reached").first().waitFor({ timeout: 30_000 });
    await page.getByRole("button", { name: "Try again" }).first().waitFor();
  });
});
