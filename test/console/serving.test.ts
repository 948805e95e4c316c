import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { OWN_SEGMENTS } from "../../src/config/formats.ts";
import { ROOT } from "../support/documents.ts";
import { type RunningService, startService } from "../support/service.ts";

const BUILD = join(ROOT, "console", "dist");
const PATHS = PAGE_PATHS.map(({ path }) => path);
const FIRST_LOAD_BYTES_MAX = 250_000;

let service: RunningService;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service?.end());

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${service.url}${path}`, { headers, redirect: "manual" });

describe("the console", () => {
  test.each([...PATHS, "/organizations/org_x", "/requests/a", "/models/a/b"])(
    "The page %s is the same document, which is never cached.",
    async (path) => {
      const answer = await get(path, { accept: "text/html" });
      expect(answer.status).toBe(200);
      expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(await answer.text()).toContain('<div id="root">');
    },
  );

  test("The page allows no content of other hosts, nothing inline, and no framing.", async () => {
    const { headers } = await get("/");
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'");
    expect(policy).not.toMatch(/unsafe|https?:|\*|data:/);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("referrer-policy")).toBe("no-referrer");
    expect(await (await get("/")).text()).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/i);
  });

  test("The assets have a hash in their name, are cached permanently and are sent compressed.", async () => {
    const assets = readdirSync(join(BUILD, "assets")).filter((name) => /\.(js|css)$/.test(name));
    expect(assets.length).toBeGreaterThan(5);
    for (const name of assets) {
      expect(name).toMatch(/-[\w-]{8}\.(js|css)$/);
      const { headers } = await get(`/assets/${name}`, { "accept-encoding": "br, gzip" });
      expect(headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
      expect(headers.get("content-encoding")).toBe("br");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
    }
  });

  test(`The compressed JavaScript of the first load of each page has at most ${FIRST_LOAD_BYTES_MAX} bytes.`, async () => {
    const assets = join(BUILD, "assets");
    const textOf = (name: string) => readFileSync(join(assets, name), "utf8");
    /** Adds a file and all that it imports statically. */
    const withImports = (name: string, found = new Set<string>()): Set<string> => {
      if (found.has(name)) return found;
      found.add(name);
      const imports = textOf(name).matchAll(/(?:from|import)\s*["'`]\.\/([\w.-]+\.js)["'`]/g);
      for (const [, file = ""] of imports) withImports(file, found);
      return found;
    };
    const index = await (await get("/")).text();
    const scripts = [...index.matchAll(/(?:src|href)="[^"]*\/assets\/([^"]+\.js)"/g)].map(([, name = ""]) => name);
    const entry = new Set(scripts.flatMap((name) => [...withImports(name)]));
    const pages = scripts.flatMap((name) =>
      [...textOf(name).matchAll(/import\(\s*["'`]\.\/([\w.-]+\.js)["'`]\s*\)/g)].map(([, file = ""]) => file),
    );
    expect(pages.length).toBeGreaterThanOrEqual(PATHS.length);
    const bytesOf = (name: string) => statSync(join(assets, `${name}.gz`)).size;
    for (const page of pages) {
      const files = withImports(page, new Set(entry));
      const bytes = [...files].reduce((sum, name) => sum + bytesOf(name), 0);
      expect(files.size).toBeGreaterThan(2);
      expect([page, bytes < FIRST_LOAD_BYTES_MAX]).toEqual([page, true]);
    }
  });

  test("The page loads nothing from another host.", async () => {
    const index = await (await get("/")).text();
    const addresses = [...index.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, address = ""]) => address);
    expect(addresses.length).toBeGreaterThan(3);
    for (const address of addresses) {
      expect(address).toMatch(/^\/(?!\/)/);
      expect((await get(address)).status).toBe(200);
    }
  });
});

test("No base path can begin with a path of the service itself.", async () => {
  const { paths } = (await (await get("/openapi.json")).json()) as { paths: object };
  const files = readdirSync(BUILD).filter((name) => !/^\.|\.(br|gz)$/.test(name));
  const own = [...Object.keys(paths), ...PATHS, "/docs", "/openapi.json", "/healthz", "/readyz"];
  const segments = [...own.map((path) => path.split("/")[1] ?? ""), ...files].filter((segment) => segment !== "");
  expect(segments.length).toBeGreaterThan(10);
  expect(segments.filter((segment) => !OWN_SEGMENTS.has(segment))).toEqual([]);
});

describe("paths next to the console", () => {
  test.each([
    "/v1",
    "/v1/",
    "/v1/nothing",
    "/nothing",
    "/assets/nothing.js",
    "/.sources",
    "/../package.json",
    "/index.html/x",
  ])("The path %s is answered with 404 in JSON.", async (path) => {
    const answer = await get(path);
    expect(answer.status).toBe(404);
    expect(await answer.json()).toMatchObject({ error: { code: "not_found" } });
  });

  test.each(["/nothing", "/nothing/deep"])(
    "A person who opens %s gets the console, with the status 404.",
    async (path) => {
      const answer = await get(path, { accept: "text/html" });
      expect(answer.status).toBe(404);
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(await answer.text()).toContain('<div id="root">');
      for (const { headers } of [answer, await get(path)]) expect(headers.get("vary")).toContain("Accept");
    },
  );

  test.each(["/v1", "/v1/nothing", "/admin/v1", "/admin/v1/nothing", "/chat/completions"])(
    "A path of the API, %s, is answered in JSON also to a person.",
    async (path) => {
      const answer = await get(path, { accept: "text/html" });
      expect(answer.status).toBe(404);
      expect(await answer.json()).toMatchObject({ error: { code: "not_found" } });
    },
  );

  test("A page accepts no other method than GET.", async () => {
    const answer = await fetch(`${service.url}/tokens`, { method: "POST" });
    expect(answer.status).toBe(404);
  });

  test("The OpenAPI document and its page are available.", async () => {
    expect((await get("/openapi.json")).status).toBe(200);
    expect((await get("/docs")).status).toBe(200);
    const document = (await (await get("/openapi.json")).json()) as { paths: object };
    const { etag } = Object.fromEntries((await get("/openapi.json")).headers);
    expect((await get("/docs/json")).headers.get("etag")).toBe(etag);
    expect(Object.keys(document.paths).filter((path) => !/^\/(admin\/v1|v1|v1beta|key)\//.test(path))).toEqual([]);
  });
});
