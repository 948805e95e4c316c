import { defineConfig } from "vite";

/** Browsers of the last two years, which support `light-dark()` and cascade layers. */
const BROWSERS = ["chrome123", "firefox120", "safari17.5"];
/** Service that the development server proxies API requests to. */
const SERVICE = "http://127.0.0.1:8484";

export default defineConfig({
  root: import.meta.dirname,
  // The service adds its base path when it serves the page.
  base: "./",
  build: {
    target: BROWSERS,
    // The Content-Security-Policy forbids inline content.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // "use client" directives matter for server rendering only.
    rolldownOptions: { checks: { moduleLevelDirective: false } },
  },
  server: { proxy: { "/v1": SERVICE, "/admin/v1": SERVICE } },
});
