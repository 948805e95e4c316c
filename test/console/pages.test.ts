import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, visit } from "../support/console.ts";
import { type RunningService, send, startService } from "../support/service.ts";

describe.skipIf(!hasBrowser)("the console", () => {
  let browser: Browser;
  let service: RunningService;
  let page: Page;

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    const admin = await adminTokenOf(service);
    const token = /sk-tg-[0-9A-Za-z]{49}/.exec(service.output())?.[0] ?? "";
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] };
    await (await send(service, "/v1/chat/completions", token, body)).text();
    ({ page } = await visit(browser, service, { colorScheme: "light" }));
    await signIn(page, admin);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  const ground = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
  const theme = (name: string) => page.getByRole("button", { name: `Theme: ${name}` });
  /** A word on the element that has the focus. */
  const focused = (word: string) => () => page.evaluate(`document.activeElement.${word}`);

  test("keeps the theme that was chosen, from the first paint on", async () => {
    const light = await ground();
    await theme("system").click();
    await theme("light").click();
    await theme("dark").waitFor();
    expect(await ground()).not.toBe(light);
    const dark = await ground();
    await page.route("**/assets/*.js", (route) => route.abort());
    await page.reload();
    expect(await ground()).toBe(dark);
    await page.unroute("**/assets/*.js");
    await page.reload();
    await theme("dark").click();
    await theme("system").waitFor();
    expect(await ground()).toBe(light);
  });

  test("has charts that are read by keyboard, and as tables", async () => {
    await settled(page);
    const chart = page.getByRole("group", { name: /^Requests per day/ });
    await chart.locator('[tabindex="0"]').focus();
    const told = focused("ariaLabel");
    await eventually(told).toMatch(/: 1 in total, Succeeded 1$/);
    const today = await told();
    await page.keyboard.press("ArrowLeft");
    await eventually(told).toMatch(/: 0 in total$/);
    await page.keyboard.press("End");
    await eventually(told).toBe(today);
    await page.keyboard.press("Home");
    await eventually(told).not.toBe(today);
    await page.getByText("Show as table").first().click();
    const table = page.getByRole("region", { name: /spent per day.*, table$/ });
    await eventually(() => table.getByRole("row").count()).toBe(31);
  });

  test("is worked by keyboard alone", async () => {
    await page.goto("/organizations");
    await settled(page);
    await page.keyboard.press("Tab");
    await eventually(focused("textContent")).toBe("Skip to content");
    await page.keyboard.press("Enter");
    await eventually(focused("id")).toBe("main");
    await page.getByRole("button", { name: "Create organization" }).focus();
    await page.keyboard.press("Enter");
    // A form is begun at its first field, and gone on with at what is wrong in it.
    await eventually(focused("labels?.[0]?.textContent")).toBe("Name");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("Enter a name.").waitFor();
    await eventually(focused("ariaInvalid")).toBe("true");
    await page.keyboard.type("Made by keyboard");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Made by keyboard" }).waitFor();
  });

  test("gives the focus back when a dialog closes", async () => {
    await page.goto("/organizations");
    await settled(page);
    const button = page.getByRole("button", { name: "Create organization" });
    await button.click();
    await eventually(focused("tagName")).toBe("INPUT");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await eventually(focused("textContent")).toBe("Create organization");
  });

  test("compares models on a narrow screen: what a row tells stays while the models move, by keyboard too", async () => {
    const wide = page.viewportSize();
    await page.setViewportSize({ width: 360, height: 780 });
    await page.goto("/models");
    for (const name of ["Sandbox Echo", "Sandbox Fault", "Sandbox Story"]) {
      const box = page.getByRole("checkbox", { name: `Compare ${name}` });
      await box.click();
      await eventually(() => box.isChecked()).toBe(true);
    }
    const region = page.getByRole("region", { name: "Model comparison" });
    const leftOf = async (role: "rowheader" | "columnheader", name: string) =>
      (await region.getByRole(role, { name }).boundingBox())?.x;
    const [told, moved] = [await leftOf("rowheader", "Context window"), await leftOf("columnheader", "Sandbox Story")];
    await region.focus();
    await page.keyboard.press("ArrowRight");
    await eventually(() => leftOf("columnheader", "Sandbox Story")).toBeLessThan(moved ?? 0);
    expect(await leftOf("rowheader", "Context window")).toBe(told);
    expect(told).toBeGreaterThanOrEqual(0);
    await page.setViewportSize(wide ?? { width: 1280, height: 720 });
  });

  test("says what happened where the service is gone", async () => {
    await page.goto("/models");
    await settled(page);
    await service.end("SIGKILL");
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await page.getByText("The service could not be reached").first().waitFor();
    await page.getByRole("button", { name: "Try again" }).first().waitFor();
  });
});
