import { type Browser, chromium } from "playwright-core";
import { inject } from "vitest";
import { CHROMIUM_FLAGS } from "./chromium.ts";

/** True if a browser is installed. The global setup reports it if not. */
export const hasBrowser = inject("chromiumPath") !== undefined;

let launched: Promise<Browser> | undefined;

/** Returns the browser of this process, which runs one test file after the other. Closing it closes the pages of a file. */
export function launchBrowser(): Promise<Browser> {
  launched ??= launch();
  return launched;
}

/** Each start of a browser takes about a second of processor time; this one ends with the process. */
async function launch(): Promise<Browser> {
  const executablePath = inject("chromiumPath");
  if (executablePath === undefined) throw new Error("There is no browser on this machine");
  const browser = await chromium.launch({ executablePath, args: CHROMIUM_FLAGS });
  browser.close = async () => {
    await Promise.all(browser.contexts().map((context) => context.close()));
  };
  return browser;
}
