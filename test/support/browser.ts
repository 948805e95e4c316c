import { type Browser, chromium } from "playwright-core";
import { inject } from "vitest";
import { CHROMIUM_FLAGS } from "./chromium.ts";

/** True if this machine has a browser; the setup of the run reports a missing one. */
export const hasBrowser = inject("chromiumPath") !== undefined;

export function launchBrowser(): Promise<Browser> {
  const executablePath = inject("chromiumPath");
  if (executablePath === undefined) throw new Error("There is no browser on this machine");
  return chromium.launch({ executablePath, args: CHROMIUM_FLAGS });
}
