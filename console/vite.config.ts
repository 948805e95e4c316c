import { defineConfig } from "vite";

/** Browsers of the last two years, which support `light-dark()` and cascade layers. */
const BROWSERS = ["chrome123", "firefox120", "safari17.5"];
/** Paths of the service that the development server forwards. */
const SERVICE_PATHS = ["/v1", "/admin/v1", "/openapi.json", "/docs/json", "/healthz", "/readyz"];

/** Returns the proxy settings for a service. It compares Host with Origin, so both must name Vite's own address. */
export function proxyTo(target: string) {
  return Object.fromEntries(SERVICE_PATHS.map((path) => [path, { target, changeOrigin: false }]));
}

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
  server: { proxy: proxyTo("http://127.0.0.1:8484") },
});
