import axeCore from "axe-core";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { expect, vi } from "vitest";
import { firstAdminToken } from "./admin.ts";
import type { RunningService } from "./service.ts";

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** Rules about colors. The themes and forced colors differ in nothing else. */
const RULES_OF_COLOR = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
const RULES_OF_LAYOUT = {
  type: "rule",
  values: [...RULES_OF_COLOR.values, "target-size", "scrollable-region-focusable"],
};
/** Generous, because other tests may keep the machine busy. */
const WAIT_MS = 60_000;

/** Browser page with the console. */
export interface Visit {
  page: Page;
  /** Logged errors, uncaught exceptions, policy violations, and requests to other hosts. */
  pageErrors: string[];
  close(): Promise<void>;
}

export async function visit(browser: Browser, service: RunningService, options: BrowserContextOptions = {}) {
  const context = await browser.newContext({ baseURL: service.url, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  const pageErrors: string[] = [];
  page.on("pageerror", (error) => pageErrors.push(String(error)));
  page.on("console", (message) => {
    // The browser logs refused requests as well, which the page shows itself.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      pageErrors.push(message.text());
  });
  page.on("request", (request) => {
    // A blob is in the page itself.
    if (
      !request
        .url()
        .replace(/^blob:/, "")
        .startsWith(service.url)
    )
      pageErrors.push(`asked ${request.url()}`);
  });
  return { page, pageErrors, close: () => context.close() } satisfies Visit;
}

/**
 * Polls until the assertion holds. Choose an assertion that does not hold before the action, because it would prove
 * nothing.
 */
export function eventually<T>(look: () => T, options: { interval?: number } = {}) {
  return expect.poll(look, { timeout: WAIT_MS, ...options });
}

/** Returns the admin token, which the first start prints shortly after the service accepts requests. */
export async function adminTokenOf(service: RunningService): Promise<string> {
  return vi.waitFor(() => firstAdminToken(service), { timeout: WAIT_MS });
}

export async function signIn(page: Page, token: string): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
}

/** Searches for an organization or a token in the picker with this label, and selects it. */
export async function pick(place: Page | Locator, label: string, name: string): Promise<void> {
  const field = place.getByRole("combobox", { name: label, exact: true });
  // Typing the current text again would not be a change.
  await field.clear();
  await field.fill(name);
  await found(place).getByRole("option", { name }).click();
  await place.getByRole("listbox").waitFor({ state: "detached" });
}

/** Locates the options of a picker, once they match the typed text. */
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

/** Returns the violations that axe finds on the current page, or in its open dialog: nobody can reach what is behind. */
async function violationsOf(page: Page, runOnly: object): Promise<string[]> {
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(axeCore.source);
  return page.evaluate(
    async (options) => {
      const { axe, document } = globalThis as unknown as {
        axe: Axe;
        document: { querySelector(selector: string): unknown };
      };
      const { violations } = await axe.run(document.querySelector("dialog[open]") ?? document, options);
      return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}`));
    },
    { runOnly, resultTypes: ["violations"] },
  );
}

/** Returns the number of pixels by which the page is wider than the window. */
function overflowOf(page: Page): Promise<number> {
  return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
}

/** A zoom of 200 % gives a page half of the pixels. */
export const WINDOWS = {
  wide: { width: 1440, height: 900 },
  wideDark: { width: 1440, height: 900 },
  wideForced: { width: 1440, height: 900 },
  medium: { width: 900, height: 700 },
  zoomed: { width: 720, height: 450 },
  narrow: { width: 360, height: 780 },
};
const LIGHT = ["light", { colorScheme: "light", forcedColors: "none" }] as const;
const DARK = ["dark", { colorScheme: "dark", forcedColors: "none" }] as const;
const FORCED = ["forced colors", { colorScheme: "light", forcedColors: "active" }] as const;
/**
 * Checks of each window. The colors of both themes are those of both layouts, so that few pages need the wide one in the dark
 * theme. The layout below 60rem is that of the narrow window, so the last three show it in every look. The
 * rules that depend on neither colors nor sizes are checked once in each layout. Few pages need the wide layout in forced
 * colors: they show the same building blocks.
 */
const CHECKS = {
  wide: [[...LIGHT, RULES]],
  wideDark: [[...DARK, RULES_OF_COLOR]],
  wideForced: [[...FORCED, RULES_OF_COLOR]],
  medium: [[...LIGHT, RULES_OF_LAYOUT]],
  zoomed: [[...FORCED, RULES_OF_LAYOUT]],
  narrow: [[...DARK, RULES]],
} as const;

/** Counts the charts that are still drawn for an earlier width. */
const STALE_CHARTS = `[...document.querySelectorAll(".chart-plot")].filter(
  (plot) => plot.querySelector("svg").viewBox.baseVal.width !== Math.max(200, plot.clientWidth)).length`;

/** Returns axe violations, overflow and page errors of the current page, by the checks of each window. */
export async function problemsOf(
  { page, pageErrors }: Visit,
  name: string,
  sizes: readonly (keyof typeof CHECKS)[] = ["wide", "wideDark", "medium", "zoomed", "narrow"],
): Promise<string[]> {
  const problems: string[] = [];
  for (const size of sizes) {
    const viewport = WINDOWS[size];
    await page.setViewportSize(viewport);
    await eventually(() => page.evaluate("innerWidth")).toBe(viewport.width);
    await eventually(() => page.evaluate(STALE_CHARTS)).toBe(0);
    const overflow = await overflowOf(page);
    if (overflow > 0) problems.push(`${size}: wider than the window by ${overflow}`);
    for (const [look, media, rules] of CHECKS[size]) {
      await page.emulateMedia(media);
      problems.push(...(await violationsOf(page, rules)).map((violation) => `${look}, ${size}: ${violation}`));
    }
  }
  await page.emulateMedia({ colorScheme: null, forcedColors: null });
  return [...problems, ...pageErrors.splice(0)].map((problem) => `${name}: ${problem}`);
}

/** Waits until the page has no placeholders left. */
export async function settled(page: Page): Promise<void> {
  await page.locator("main").waitFor();
  await eventually(() => page.locator(".skeleton").count()).toBe(0);
}
