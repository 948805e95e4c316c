import { defineConfig } from "vite";

/** Browsers that know `light-dark()` and cascade layers: those of the last two years. */
const BROWSERS = ["chrome123", "firefox120", "safari17.5"];
/** Of `vite` alone, for work on the console: a service that runs beside it answers what the console asks. */
const SERVICE = "http://127.0.0.1:8484";

export default defineConfig({
  root: import.meta.dirname,
  // The service puts the path in front under which it is published.
  base: "./",
  build: {
    target: BROWSERS,
    // The policy of the page takes nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // "use client" means something to servers that render React; this one does not.
    rolldownOptions: { checks: { moduleLevelDirective: false } },
  },
  server: { proxy: { "/v1": SERVICE, "/admin/v1": SERVICE } },
});
