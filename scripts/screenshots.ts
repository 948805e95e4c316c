/**
 * `npm run screenshots`: starts a service with a made-up history of two weeks and takes the screenshots of its console
 * that README.md and docs/console.md show. Needs a Chromium on the PATH or at CHROMIUM_PATH.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";
import { CHROMIUM_FLAGS, findChromium } from "../test/support/chromium.ts";
import { makeDirectory, type ServiceProcess, send, startProcess } from "../test/support/service.ts";
import { buildConsole } from "./build-console.ts";

const IMAGES = join(dirname(dirname(fileURLToPath(import.meta.url))), "docs", "images");
const DAYS = 14;
const DAY_MS = 86_400_000;
const WINDOWS = { wide: { width: 1280, height: 800 }, narrow: { width: 360, height: 780 } };
const QUESTIONS = [
  "Which toll roads are the oldest?",
  "Summarize the minutes of Tuesday.",
  "Translate this into French.",
];
const PRICED = [
  { id: "assistant", price: { input: 250, output: 2000 } },
  { id: "assistant-mini", price: { input: 50, output: 400 } },
  { id: "long-reader", price: { input: 120, output: 600 } },
];
const CONFIG = {
  playground: { openToGuests: true },
  providers: [{ id: "local", kind: "sandbox" }],
  models: PRICED.map(({ id, price }) => ({
    id,
    name: id,
    description: "A made-up model of these pictures.",
    category: "chat",
    contextWindow: 128_000,
    cutoffDate: "2026-06-30",
    routes: [{ provider: "local", model: "story" }],
    price,
  })),
};

interface Caller {
  organizationId: string;
  token: string;
  /** Requests on an ordinary day. */
  pace: number;
}

/** Starts the service with its clock set back by some days. */
function startDaysAgo(days: number, dataDir: string): Promise<ServiceProcess> {
  const shift = `const now = Date.now; Date.now = () => now() - ${days * DAY_MS};`;
  const flag = `--import=data:text/javascript,${encodeURIComponent(shift)}`;
  return startProcess({ dataDir, config: CONFIG, environment: days === 0 ? {} : { NODE_OPTIONS: flag } });
}

async function makeCallers(service: ServiceProcess): Promise<Caller[]> {
  const callers: Caller[] = [];
  for (const [name, credits, tokens] of [
    ["Northwind Research", "400", ["notebook", "literature search"]],
    ["Customer support", "150", ["help desk"]],
    ["Department of History", "60", ["seminar"]],
  ] as const) {
    const { id } = await service.tollgate<{ id: string }>("org", "create", name, "--credits", credits);
    for (const [index, tokenName] of tokens.entries()) {
      const words = ["token", "create", "--org", id, "--name", tokenName];
      const { token } = await service.tollgate<{ token: string }>(...words);
      callers.push({ organizationId: id, token, pace: 6 - 2 * index });
    }
  }
  return callers;
}

/** Sends the requests of a day: a number that differs from day to day, and is the same in every run. */
async function sendRequests(service: ServiceProcess, callers: readonly Caller[], day: number): Promise<void> {
  for (const [index, { token, pace }] of callers.entries()) {
    const count = Math.max(1, Math.round(pace * (1 + Math.sin(day * 1.7 + index))));
    for (let asked = 0; asked < count; asked += 1) {
      const model = PRICED[(asked + index + day) % PRICED.length]?.id;
      const content = QUESTIONS[asked % QUESTIONS.length];
      const body = {
        model,
        stream: asked % 2 === 0,
        messages: [{ role: "user", content }],
        max_tokens: 60 + 70 * index,
      };
      await (await send(service, "/v1/chat/completions", token, body)).text();
    }
  }
}

/** Opens the console as the operator, in a window of its own. */
async function openConsole(browser: Browser, service: ServiceProcess, admin: string, look: Look): Promise<Page> {
  const { colorScheme = "light", size = "wide" } = look;
  const viewport = WINDOWS[size];
  const context = await browser.newContext({ baseURL: service.url, colorScheme, viewport, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto("/");
  await page.getByLabel("Token").fill(admin);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  return page;
}

interface Look {
  colorScheme?: "light" | "dark";
  size?: keyof typeof WINDOWS;
}

async function takeScreenshots(browser: Browser, service: ServiceProcess, admin: string, organizationId: string) {
  const shots: [name: string, look: Look, open: (page: Page) => Promise<void>][] = [
    ["overview", {}, (page) => show(page, "/?period=30")],
    ["overview-narrow", { colorScheme: "dark", size: "narrow" }, (page) => show(page, "/?period=30")],
    ["organization", {}, (page) => show(page, `/organizations/${organizationId}`)],
    ["tokens", {}, (page) => show(page, "/tokens")],
    ["request", {}, showRequest],
    ["models", {}, (page) => show(page, "/models?compare=assistant,assistant-mini,long-reader")],
    ["playground", { colorScheme: "dark" }, conversationAfter],
    ["audit-log", {}, (page) => show(page, "/audit")],
  ];
  for (const [name, look, open] of shots) {
    const page = await openConsole(browser, service, admin, look);
    await open(page);
    // Playwright itself writes no WebP, which is a third of the size of a PNG.
    const session = await page.context().newCDPSession(page);
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 85 });
    writeFileSync(join(IMAGES, `${name}.webp`), data, "base64");
    await page.context().close();
  }
}

async function show(page: Page, path: string): Promise<void> {
  await page.goto(path);
  await page.waitForLoadState("networkidle");
}

async function showRequest(page: Page): Promise<void> {
  await show(page, "/requests");
  await page.locator("td a").nth(2).click();
  await page.getByText("Request ID").last().waitFor();
}

async function conversationAfter(page: Page): Promise<void> {
  await show(page, "/playground?model=sandbox/echo");
  await page.getByRole("combobox", { name: "Charged to" }).fill("Customer support");
  await page.getByRole("option", { name: "Customer support" }).click();
  await page
    .getByLabel("Message", { exact: true })
    .fill("A toll is a *fee* for passing:\n\n- a road\n- a bridge\n- **a gate**");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText(/first token after/).waitFor();
}

await buildConsole();
rmSync(IMAGES, { recursive: true, force: true });
mkdirSync(IMAGES, { recursive: true });
const dataDir = await makeDirectory();
let callers: Caller[] = [];
for (let day = DAYS; day >= 0; day -= 1) {
  const service = await startDaysAgo(day, dataDir);
  if (day === DAYS) callers = await makeCallers(service);
  await sendRequests(service, callers, day);
  if (day === 0) {
    const { token } = await service.tollgate<{ token: string }>("admin", "token");
    const browser = await chromium.launch({ executablePath: findChromium(), args: CHROMIUM_FLAGS });
    await takeScreenshots(browser, service, token, callers[0]?.organizationId ?? "");
    await browser.close();
  }
  await service.end();
}
rmSync(dataDir, { recursive: true, force: true });
