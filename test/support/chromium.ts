import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** Without windows, the first one takes half of the processor time beside the pages themselves. */
const NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/**
 * The suggestions below the address bar are web pages, which each window keeps updated: with them a test's page takes half as
 * much processor time again.
 */
const SUGGESTIONS = ["WebUIOmniboxPopup", "WebUIOmniboxFullPopup", "WebUIOmniboxAimPopup"];
/** Those that Playwright switches off, because this flag replaces its own. */
const FEATURES_OFF = [
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsUpgrades",
  "HttpsFirstBalancedModeAutoEnable",
  "LensOverlay",
  "MediaRouter",
  "PaintHolding",
  "ThirdPartyStoragePartitioning",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "OptimizationHints",
  "NetworkTimeServiceQuerying",
  "AimEnabled",
  "PreconnectToSearch",
];

/** Headless, and without background requests to other hosts. */
export const CHROMIUM_FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  `--disable-features=${[...FEATURES_OFF, ...SUGGESTIONS].join()}`,
];

/** Finds Chromium: at CHROMIUM_PATH, or the first one on the PATH. */
export function findChromium(): string | undefined {
  const stated = process.env.CHROMIUM_PATH;
  if (stated !== undefined && stated !== "") return stated;
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.flatMap((folder) => NAMES.map((name) => join(folder, name))).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
