import { type Browser, chromium } from "playwright-core";
import { inject } from "vitest";
import { CHROMIUM_FLAGS } from "./chromium.ts";

/** Whether this machine has a browser; the run's setup says so where it does not. */
export const hasBrowser = inject("chromiumPath") !== undefined;

export function launchBrowser(): Promise<Browser> {
  const executablePath = inject("chromiumPath");
  if (executablePath === undefined) throw new Error("There is no browser on this machine");
  return chromium.launch({ executablePath, args: CHROMIUM_FLAGS });
}
