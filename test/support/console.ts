import axeCore from "axe-core";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { expect, vi } from "vitest";
import { firstAdminToken } from "./admin.ts";
import type { RunningService } from "./service.ts";

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** Those of them that look at colours, in which alone the themes differ. */
const RULES_OF_COLOR = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
/** What takes a moment takes many of them on a machine that is busy with other tests. */
const WAIT_MS = 30_000;

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

/**
 * Looks again until it is so. What was so before something was done proves nothing of it: look for what can only be so
 * after it.
 */
export function eventually<T>(look: () => T, options: { interval?: number } = {}) {
  return expect.poll(look, { timeout: WAIT_MS, ...options });
}

/** The admin token, which the first start writes a moment after it takes requests. */
export async function adminTokenOf(service: RunningService): Promise<string> {
  return vi.waitFor(() => firstAdminToken(service), { timeout: WAIT_MS });
}

export async function signIn(page: Page, token: string): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
}

/** Looks for an organization or a token by its name, in the field of this label, and takes the one that is found. */
export async function pick(place: Page | Locator, label: string, name: string): Promise<void> {
  const field = place.getByRole("combobox", { name: label, exact: true });
  // Nobody types what stands there already.
  await field.clear();
  await field.fill(name);
  await found(place).getByRole("option", { name }).click();
  await place.getByRole("listbox").waitFor({ state: "detached" });
}

/** What a picker offers, once that is what fits all that was typed: until then it may still move. */
export function found(place: Page | Locator): Locator {
  return place.locator("[role=listbox][aria-busy=false]");
}

interface Finding {
  id: string;
  nodes: { target: unknown[] }[];
}
interface Axe {
  run(root: unknown, options: object): Promise<{ violations: Finding[] }>;
}

/** What axe finds wrong with the page as it stands, in words. */
async function violationsOf(page: Page, runOnly: object): Promise<string[]> {
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(axeCore.source);
  return page.evaluate(
    async (options) => {
      const { axe, document } = globalThis as unknown as { axe: Axe; document: unknown };
      const { violations } = await axe.run(document, options);
      return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}`));
    },
    { runOnly, resultTypes: ["violations"] },
  );
}

/** How much wider than the window the page is. */
function overflowOf(page: Page): Promise<number> {
  return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
}

export const WINDOWS = { wide: { width: 1440, height: 900 }, narrow: { width: 360, height: 780 } };
const RULES_BY_THEME = [
  ["light", RULES],
  ["dark", RULES_OF_COLOR],
] as const;

/** How many charts are still drawn for a width that they had before. */
const MISFITS = `[...document.querySelectorAll(".chart-plot")].filter(
  (plot) => plot.querySelector("svg").viewBox.baseVal.width !== Math.max(200, plot.clientWidth)).length`;

/** What is wrong with the page as it stands, in each theme, wide and narrow: by axe, and by what does not fit. */
export async function problemsOf({ page, mishaps }: Visit, name: string): Promise<string[]> {
  const problems: string[] = [];
  for (const [size, viewport] of Object.entries(WINDOWS)) {
    await page.setViewportSize(viewport);
    await eventually(() => page.evaluate("innerWidth")).toBe(viewport.width);
    await eventually(() => page.evaluate(MISFITS)).toBe(0);
    const overflow = await overflowOf(page);
    if (overflow > 0) problems.push(`${size}: wider than the window by ${overflow}`);
    for (const [colorScheme, rules] of RULES_BY_THEME) {
      await page.emulateMedia({ colorScheme });
      problems.push(...(await violationsOf(page, rules)).map((violation) => `${colorScheme}, ${size}: ${violation}`));
    }
  }
  return [...problems, ...mishaps.splice(0)].map((problem) => `${name}: ${problem}`);
}

/** Waits until nothing holds the place of what is on its way. */
export async function settled(page: Page): Promise<void> {
  await page.locator("main").waitFor();
  await eventually(() => page.locator(".skeleton").count()).toBe(0);
}
