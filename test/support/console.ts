import axeCore from "axe-core";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { expect, vi } from "vitest";
import type { RunningService } from "./service.ts";

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const WAIT_MS = 15_000;

/** A page of the console in a browser of its own, and everything that it must not do. */
export interface Visit {
  page: Page;
  /** What was logged as an error, thrown, refused by the page's policy, or asked of another host. */
  mishaps: string[];
  close(): Promise<void>;
}

export async function visit(browser: Browser, service: RunningService, options: BrowserContextOptions = {}) {
  const context = await browser.newContext({ baseURL: service.url, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  const mishaps: string[] = [];
  page.on("pageerror", (error) => mishaps.push(String(error)));
  page.on("console", (message) => {
    // A request that the service refuses is told by the page, and by the browser beside it.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      mishaps.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(service.url)) mishaps.push(`asked ${request.url()}`);
  });
  return { page, mishaps, close: () => context.close() } satisfies Visit;
}

/** The admin token, which the first start prints a moment after it takes requests. */
export async function adminTokenOf(service: RunningService): Promise<string> {
  const printed = () => {
    const token = /tg-admin-[0-9A-Za-z]{49}/.exec(service.output())?.[0];
    if (token === undefined) throw new Error("No admin token was printed");
    return token;
  };
  return vi.waitFor(printed, { timeout: WAIT_MS });
}

export async function signIn(page: Page, token: string): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
}

interface Finding {
  id: string;
  nodes: { target: unknown[]; failureSummary?: string }[];
}
interface Axe {
  run(root: unknown, options: object): Promise<{ violations: Finding[] }>;
}

/** What axe finds wrong with the page as it stands, in words. */
export async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(axeCore.source);
  const found = await page.evaluate(async (rules) => {
    const { axe, document } = globalThis as unknown as { axe: Axe; document: unknown };
    const { violations } = await axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}`));
  }, RULES);
  return found;
}

/** How much wider than the window the page is. */
export function overflowOf(page: Page): Promise<number> {
  return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
}

/** Waits until nothing holds the place of what is on its way. */
export async function settled(page: Page): Promise<void> {
  await page.locator("main").waitFor();
  await expect.poll(() => page.locator(".skeleton").count(), { timeout: WAIT_MS }).toBe(0);
}
