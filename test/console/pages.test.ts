import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { firstToken } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, visit } from "../support/console.ts";
import { type RunningService, send, startService } from "../support/service.ts";
import { startUpstream, type Upstream } from "../support/upstream.ts";

describe.skipIf(!hasBrowser)("the console", () => {
  let browser: Browser;
  let service: RunningService;
  let page: Page;
  let upstream: Upstream;

  beforeAll(async () => {
    upstream = await startUpstream();
    upstream.behave("costed", ({ response }) => {
      const choices = [{ index: 0, message: { role: "assistant", content: "a" }, finish_reason: "stop" }];
      const usage = { prompt_tokens: 8, completion_tokens: 2, total_tokens: 10, cost: 0.0000123 };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "gen-1", choices, usage }));
    });
    const costed = { id: "costed", price: { input: 2, output: 2 }, routes: [{ provider: "up", model: "costed" }] };
    const config = { providers: [upstream.provider], models: [costed] };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    const admin = await adminTokenOf(service);
    const token = firstToken(service);
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] };
    await (await send(service, "/v1/chat/completions", token, body)).text();
    ({ page } = await visit(browser, service, { colorScheme: "light" }));
    await signIn(page, admin);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await upstream?.close();
  });

  const ground = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
  const theme = (name: string) => page.getByRole("button", { name: `Theme: ${name}` });
  /** Returns a function that reads a property of the focused element. */
  const focused = (word: string) => () => page.evaluate(`document.activeElement.${word}`);

  test("The console keeps the chosen theme from the first paint.", async () => {
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

  test("The page shows that it loads before its script and its session have arrived.", async () => {
    for (const late of ["**/assets/*.js", "**/admin/v1/session"]) {
      await page.route(late, () => {});
      await page.goto("/", { waitUntil: "commit" });
      await page.getByRole("status").getByText("Loading …").waitFor();
      await page.unroute(late);
    }
    await page.goto("/");
    await page.getByRole("heading", { name: "Overview" }).waitFor();
  });

  test("Forced colors keep the colors of the legend, and mark the page that is open.", async () => {
    await page.goto("/");
    await settled(page);
    await page.emulateMedia({ forcedColors: "active" });
    const grounds = (selector: string) =>
      page.evaluate<string[]>(
        `[...document.querySelectorAll(${JSON.stringify(selector)})].map((element) => getComputedStyle(element).backgroundColor)`,
      );
    const swatches = await grounds(".legend:has(li:nth-child(3)) .swatch");
    expect(swatches.length).toBeGreaterThanOrEqual(3);
    expect(new Set(swatches.slice(0, 3)).size).toBe(3);
    const [open] = await grounds(".shell > .sidebar [aria-current=page]");
    const others = await grounds(".shell > .sidebar .nav a:not([aria-current])");
    expect(others.length).toBeGreaterThan(3);
    expect(others).not.toContain(open);
    await page.emulateMedia({ forcedColors: null });
  });

  test("The charts can be read by keyboard and as tables.", async () => {
    await settled(page);
    const chart = page.getByRole("group", { name: /^Requests per day/ });
    await chart.locator('[tabindex="0"]').focus();
    const label = focused("ariaLabel");
    await eventually(label).toMatch(/: 1 in total, Succeeded 1$/);
    const today = await label();
    await page.keyboard.press("ArrowLeft");
    await eventually(label).toMatch(/: 0 in total$/);
    await page.keyboard.press("End");
    await eventually(label).toBe(today);
    await page.keyboard.press("Home");
    await eventually(label).not.toBe(today);
    await page.getByText("Show as table").first().click();
    const table = page.getByRole("region", { name: /spent per day.*, table$/ });
    await eventually(() => table.getByRole("row").count()).toBe(31);
  });

  test("A model that is charged by the image shows its price, and does not lead to the playground.", async () => {
    await page.goto("/models?compare=sandbox%2Fimage%2Csandbox%2Fspeech");
    await page
      .getByRole("row", { name: /sandbox\/image/ })
      .getByRole("cell", { name: "0.04 per image" })
      .waitFor();
    const comparison = page.getByRole("region", { name: "Model comparison" });
    const bounds = comparison.getByRole("row", { name: "Max output tokens" }).getByRole("cell");
    expect(await bounds.allInnerTexts()).toEqual(["16,384", "–"]);
    const compared = comparison.getByRole("row", { name: "Other prices" });
    expect(await compared.getByRole("cell").allInnerTexts()).toEqual(["0.04 per image", "0.000015 per character"]);
    await page.goto("/models/sandbox/image");
    const panel = page.getByRole("dialog");
    await panel.getByText("0.04 per image").waitFor();
    expect(await panel.getByRole("link", { name: "Try in playground" }).count()).toBe(0);
    expect(await panel.getByText(/^(Guest access|Input, credits)/).count()).toBe(0);
    await page.goto("/playground?model=sandbox%2Fimage");
    await page.getByText("sandbox/image cannot be used in the playground, which tests chat models.").waitFor();
  });

  test("The playground charges the only organization that there is.", async () => {
    await page.goto("/playground");
    await eventually(() => page.getByRole("combobox", { name: "Charged to" }).inputValue()).toBe("default");
    await page.getByPlaceholder("Enter a message").waitFor();
  });

  test("A click on a row follows its first link, but none on another control and none that selects text.", async () => {
    await page.goto("/models");
    const row = page.getByRole("row", { name: /sandbox\/echo/ });
    const path = () => page.evaluate("location.pathname");
    const selected = () => page.evaluate<string>("getSelection().toString()");
    await row
      .getByRole("cell")
      .first()
      .click({ position: { x: 3, y: 3 } });
    const id = row.getByText("sandbox/echo");
    await id.hover({ position: { x: 1, y: 8 } });
    await page.mouse.down();
    await row.getByText("sandbox", { exact: true }).hover();
    await page.mouse.up();
    expect([await selected(), await path()]).toEqual([expect.stringContaining("andbox/echo"), "/models"]);
    await row.getByText(/^Not published/).click();
    await page.getByRole("dialog", { name: "Sandbox Echo" }).waitFor();
    expect([await selected(), await path()]).toEqual(["", "/models/sandbox/echo"]);
  });

  test("Only rows that lead to a page look like it.", async () => {
    const cursor = (table: string) => async () => {
      const row = page.getByRole("table", { name: table }).locator("tbody tr:not(.skeleton-row)").first();
      await row.hover();
      return page.evaluate<string>("getComputedStyle(document.querySelector('tbody tr:hover')).cursor");
    };
    await page.goto("/organizations");
    await eventually(cursor("Organizations")).toBe("pointer");
    await page.getByRole("table", { name: "Organizations" }).getByText("Active").click();
    await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
    await eventually(cursor("Grants")).toBe("auto");
  });

  test("The console can be used by keyboard alone.", async () => {
    await page.goto("/organizations");
    await settled(page);
    await page.keyboard.press("Tab");
    await eventually(focused("textContent")).toBe("Skip to content");
    await page.keyboard.press("Enter");
    await eventually(focused("id")).toBe("main");
    await page.getByRole("button", { name: "Create organization" }).focus();
    await page.keyboard.press("Enter");
    // A form focuses its first field, and after an error the first invalid field.
    await eventually(focused("labels?.[0]?.textContent")).toBe("Name");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText("Enter a name.").waitFor();
    await eventually(focused("ariaInvalid")).toBe("true");
    await page.keyboard.type("Made by keyboard");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Made by keyboard" }).waitFor();
  });

  test("A dialog restores the focus when it closes.", async () => {
    await page.goto("/organizations");
    await settled(page);
    const button = page.getByRole("button", { name: "Create organization" });
    await button.click();
    await eventually(focused("tagName")).toBe("INPUT");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await eventually(focused("textContent")).toBe("Create organization");
  });

  test("The model comparison keeps its row headers in view on a narrow screen while it scrolls by keyboard.", async () => {
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
    const [label, moved] = [await leftOf("rowheader", "Context window"), await leftOf("columnheader", "Sandbox Story")];
    await region.focus();
    await page.keyboard.press("ArrowRight");
    await eventually(() => leftOf("columnheader", "Sandbox Story")).toBeLessThan(moved ?? 0);
    expect(await leftOf("rowheader", "Context window")).toBe(label);
    expect(label).toBeGreaterThanOrEqual(0);
    await page.setViewportSize(wide ?? { width: 1280, height: 720 });
  });

  test("The overview shows the costs of providers next to the charges that they belong to.", async () => {
    const body = { model: "costed", messages: [{ role: "user", content: "go" }] };
    await (await send(service, "/v1/chat/completions", firstToken(service), body)).text();
    await page.goto("/");
    const tile = page.locator(".tile").filter({ hasText: "Provider cost" });
    await tile.getByText("0.0000123", { exact: true }).waitFor();
    await tile.getByText("0.00002 credits charged where the cost is known").waitFor();
    const costOf = (model: string) =>
      page.getByRole("region", { name: "Top models" }).getByRole("row", { name: model }).getByRole("cell").last();
    expect(await costOf("costed").innerText()).toMatch(/^0\.0000123\s+0\.00002 charged$/);
    expect(await costOf("sandbox/echo").innerText()).toBe("–");
  });

  test("New requests are counted in a button and move no row before it is pressed.", async () => {
    await page.goto("/requests");
    const rows = page.locator("tbody tr:not(.skeleton-row)");
    await settled(page);
    const before = await rows.count();
    expect(before).toBeGreaterThan(0);
    const body = { model: "sandbox/story", messages: [{ role: "user", content: "later" }], max_tokens: 5 };
    await (await send(service, "/v1/chat/completions", firstToken(service), body)).text();
    const button = page.getByRole("button", { name: "1 new" });
    await button.waitFor();
    expect(await rows.count()).toBe(before);
    expect(await page.getByRole("table").getByText("sandbox/story").count()).toBe(0);
    await button.click();
    await page.getByRole("table").getByText("sandbox/story").waitFor();
    expect(await rows.count()).toBe(before + 1);
    expect(await button.count()).toBe(0);
  });

  test("The console says that the service cannot be reached after it has stopped.", async () => {
    await page.goto("/models");
    await settled(page);
    await service.end();
    await page.getByRole("link", { name: "Tokens" }).first().click();
    await page.getByText("The service could not be reached").first().waitFor();
    await page.getByRole("button", { name: "Try again" }).first().waitFor();
  });
});
