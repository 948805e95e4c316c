import { rm } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, visit } from "../support/console.ts";
import {
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startProcess,
  startService,
} from "../support/service.ts";

const GRANTED = 1_000_000_000;
const CONFIG = {
  providers: [{ id: "local", kind: "sandbox" }],
  models: [
    { id: "priced", price: { input: 0.333333, output: 1234.567 }, routes: [{ provider: "local", model: "echo" }] },
  ],
};
const micro = (text: string | null) => Math.round(Number(text?.replace("−", "-").replaceAll(/[^\d.-]/g, "")) * 1e6);
const sum = (amounts: readonly number[]) => amounts.reduce((total, amount) => total + amount, 0);

/** Starts the service with its clock set back to a time. */
function startAt(atMs: number, dataDir: string): Promise<RunningService> {
  const shift = `const now = Date.now; Date.now = () => now() - ${Date.now() - atMs};`;
  const flag = `--import=data:text/javascript,${encodeURIComponent(shift)}`;
  return startProcess({ dataDir, config: CONFIG, environment: { NODE_OPTIONS: flag } });
}

describe.skipIf(!hasBrowser)("the figures of last month in a browser in Los Angeles", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let page: Page;
  let dataDir: string;
  let month: string;
  /** Charges of last month and of this month, in micro-credits. */
  const charged = [0, 0];

  /** Charges requests a minute after a month began, which is still the month before in Los Angeles. */
  async function charge(beganMs: number, count: number): Promise<number> {
    const past = await startAt(beganMs + 60_000, dataDir);
    organization ??= await makeOrganization(past, String(GRANTED / 1e6));
    const costs: number[] = [];
    for (let sent = 1; sent <= count; sent += 1) {
      const body = { model: "priced", messages: [{ role: "user", content: "word ".repeat(sent) }] };
      const answer = await send(past, "/v1/chat/completions", organization.token, body);
      costs.push(Math.round(((await answer.json()) as { usage: { cost: number } }).usage.cost * 1e6));
    }
    await past.end();
    return sum(costs);
  }

  beforeAll(async () => {
    dataDir = await makeDirectory();
    const now = new Date();
    const [lastMs, thisMs] = [-1, 0].map((ahead) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + ahead, 1)) as [
      number,
      number,
    ];
    month = new Date(lastMs).toISOString().slice(0, 7);
    charged[0] = await charge(lastMs, 3);
    charged[1] = await charge(thisMs, 2);
    [browser, service] = await Promise.all([launchBrowser(), startService({ dataDir, config: CONFIG })]);
    const timezoneId = "America/Los_Angeles";
    ({ page } = await visit(browser, service, { timezoneId }));
    await signIn(page, await adminTokenOf(service));
    expect(await page.evaluate("new Date(Date.UTC(2026, 0, 1)).getFullYear()")).toBe(2025);
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await rm(dataDir, { recursive: true, force: true });
  });

  test("The overview shows exactly what was charged in the UTC month.", async () => {
    await page.goto(`/?period=${month}&organization_id=${organization.id}`);
    const spent = page.locator(".tile", { hasText: "Spent" }).locator("[title]");
    await eventually(async () => micro(await spent.getAttribute("title"))).toBe(charged[0]);
    await page.getByLabel("Period (UTC)").selectOption("month");
    await eventually(async () => micro(await spent.getAttribute("title"))).toBe(charged[1]);
  });

  test("The statement, its balances and its CSV show the same amounts.", async () => {
    await page.goto(`/organizations/${organization.id}?tab=statement`);
    const statement = page.locator(".card", { has: page.getByRole("heading", { name: "Statement" }) });
    await statement.getByLabel("Period (UTC)").selectOption(month);
    await statement.getByText("Closing balance").waitFor();
    await settled(page);
    const total = async (name: string) =>
      micro(await statement.locator(".facts > div", { hasText: name }).locator("dd").textContent());
    // Until the chosen month is loaded, the present one is shown.
    await eventually(() => total("Opening balance")).toBe(0);
    expect(await total("Granted")).toBe(GRANTED);
    expect(await total("Charged")).toBe(-(charged[0] ?? 0));
    expect(await total("Closing balance")).toBe(GRANTED - (charged[0] ?? 0));
    const charges = statement.getByRole("row").filter({ hasText: "Charged" });
    const amounts = await charges.evaluateAll((rows) =>
      (rows as unknown as { cells: { textContent: string }[] }[]).map(({ cells }) => cells[2]?.textContent ?? ""),
    );
    expect(amounts).toHaveLength(3);
    expect(-sum(amounts.map(micro))).toBe(charged[0]);
    const link = await statement.getByRole("link", { name: "Export CSV" }).getAttribute("href");
    const file = await page.request.get(link ?? "");
    expect(file.headers()["content-disposition"]).toContain(`-${month}-statement.csv`);
    const csv = await file.text();
    const [head = "", ...lines] = csv.trim().split("\n");
    const at = (name: string) => head.split(",").indexOf(name);
    const rows = lines.map((line) => line.split(",")).filter((cells) => cells[at("kind")] === "charge");
    expect(rows).toHaveLength(3);
    expect(-sum(rows.map((cells) => micro(cells[at("credits")] ?? "")))).toBe(charged[0]);
    const totals = lines
      .map((line) => line.trimEnd().split(","))
      .filter((cells) => cells[at("kind")] === "total_charge");
    expect(totals.map((cells) => micro(cells.at(-1) ?? ""))).toEqual([-(charged[0] ?? 0)]);
  });

  test("The API reports the sum of both months as used.", async () => {
    const { creditsUsed } = await settledUsage(service, organization.token);
    expect(Math.round(creditsUsed * 1e6)).toBe(sum(charged));
  });

  test("The times of the statement are those of the API, in UTC.", async () => {
    await page.goto(`/organizations/${organization.id}?tab=statement`);
    const statement = page.locator(".card", { has: page.getByRole("heading", { name: "Statement" }) });
    await statement.getByLabel("Period (UTC)").selectOption(month);
    await statement
      .getByRole("row")
      .getByText(/, 00:0\d:\d\d UTC/)
      .first()
      .waitFor();
  });
});
