import { createServer, request as forward, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, pick, settled, type Visit, visit } from "../support/console.ts";
import { makeOrganization, type RunningService, startService } from "../support/service.ts";

const BASE_PATH = "/tools/tollgate";

/** Starts a proxy that publishes a service under a path of its host. */
function publish(service: RunningService, { strips }: { strips: boolean }): Promise<Server> {
  const server = createServer((incoming, answer) => {
    const url = incoming.url ?? "";
    if (!url.startsWith(BASE_PATH)) {
      answer.writeHead(404).end();
      return;
    }
    const { hostname: host, port } = new URL(service.url);
    const path = strips ? url.slice(BASE_PATH.length) || "/" : url;
    const { method, headers } = incoming;
    const outgoing = forward({ host, port, path: path.startsWith("?") ? `/${path}` : path, method, headers });
    outgoing.on("response", (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(answer);
    });
    outgoing.on("error", () => answer.destroy());
    answer.on("close", () => outgoing.destroy());
    incoming.pipe(outgoing);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

describe.skipIf(!hasBrowser).each([
  ["strips its prefix", { strips: true }],
  ["passes its prefix on", { strips: false }],
])("the console behind a proxy that %s", (_, options) => {
  let browser: Browser;
  let service: RunningService;
  let proxy: Server;
  let visitor: Visit;
  let root: string;

  beforeAll(async () => {
    const config = { server: { basePath: BASE_PATH } };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config })]);
    await makeOrganization(service, "50");
    proxy = await publish(service, options);
    const { port } = proxy.address() as AddressInfo;
    root = `http://127.0.0.1:${port}${BASE_PATH}`;
    // Every request outside of the prefix counts as an error.
    visitor = await visit(browser, { ...service, url: root });
  });
  afterAll(async () => {
    await browser?.close();
    proxy?.close();
    proxy?.closeAllConnections();
    await service?.end();
  });

  test("The sign-in limits its cookie to the prefix.", async () => {
    const { page } = visitor;
    await page.goto(root);
    await page.getByLabel("Token").fill(await adminTokenOf(service));
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    const cookies = await page.context().cookies();
    expect(cookies).toMatchObject([{ name: "tollgate_session_tools_tollgate", path: BASE_PATH, httpOnly: true }]);
    await page.getByRole("button", { name: "Theme: system" }).click();
    expect((await page.context().cookies()).map(({ path }) => path)).toEqual([BASE_PATH, BASE_PATH]);
  });

  test("Every page opens by its URL and by a link.", async () => {
    const { page } = visitor;
    const pages = PAGE_PATHS.filter(({ roles }) => (roles as readonly string[]).includes("operator"));
    // The service takes the prefix off before it looks at the page, so of the other proxy a few pages show the same.
    for (const { path } of options.strips ? pages : pages.slice(0, 3)) {
      await page.goto(`${root}${path}`);
      await settled(page);
      const title = await page.locator("h1").textContent();
      expect(title, path).not.toBe("Page not found");
      await page
        .getByRole("navigation")
        .getByRole("link", { name: title ?? "", exact: true })
        .click();
      await eventually(() => new URL(page.url()).pathname).toBe(`${BASE_PATH}${path}`);
    }
    await page.goto(`${root}/organizations`);
    await page.getByLabel("Status").selectOption("active");
    await page.waitForURL(`${root}/organizations?status=active`);
    await page.getByRole("link", { name: "Test" }).click();
    await page.getByRole("link", { name: "Statement", exact: true }).click();
    const href = await page.getByRole("link", { name: "CSV" }).getAttribute("href");
    expect(href).toMatch(new RegExp(`^${BASE_PATH}/admin/v1/`));
    expect(visitor.pageErrors).toEqual([]);
  });

  test("The console and its code samples call the API under the prefix.", async () => {
    const { page } = visitor;
    await page.goto(`${root}/playground?model=sandbox%2Fecho`);
    await pick(page, "Charged to", "Test");
    await page.getByLabel("Message", { exact: true }).fill("Good morning");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    await page.getByText(/tokens out · .* credits/).waitFor();
    await page.getByRole("button", { name: "View code" }).click();
    await page.getByText(`${root}/v1/chat/completions`).waitFor();
    expect(visitor.pageErrors).toEqual([]);
  });

  test("The reference of the API has addresses with the prefix.", async () => {
    const { page } = visitor;
    await page.goto(`${root}/docs`);
    await page.getByText(`curl '${root}/v1/chat/completions'`).waitFor();
    await page.getByRole("link", { name: "Create a chat completion" }).first().click();
    await page.getByRole("heading", { name: "Create a chat completion" }).waitFor();
    const document = (await (await page.request.get(`${root}/openapi.json`)).json()) as { servers: unknown };
    expect(document.servers).toEqual([{ url: BASE_PATH }]);
    expect(visitor.pageErrors).toEqual([]);
  });

  test("The service also works at its own address, which the start report prints with the prefix.", async () => {
    expect(service.output()).toContain(`${service.url}${BASE_PATH}/v1/chat/completions`);
    const direct = await visit(browser, service);
    await direct.page.goto("/tokens");
    await direct.page.getByRole("heading", { name: "Sign in" }).waitFor();
    expect(direct.page.url()).toBe(`${service.url}${BASE_PATH}/tokens`);
    for (const path of ["/v1/models", `${BASE_PATH}/v1/models`, `${BASE_PATH}/v1/models?a=b`]) {
      expect((await fetch(`${service.url}${path}`)).status, path).toBe(401);
    }
    expect((await fetch(`${service.url}${BASE_PATH}x/v1/models`)).status).toBe(404);
    const unprefixed = await (await fetch(`${service.url}${BASE_PATH}/chat/completions`)).json();
    expect(unprefixed).toMatchObject({
      error: { message: expect.stringContaining(`${service.url}${BASE_PATH}/v1.`) },
    });
    expect(direct.pageErrors).toEqual([]);
    await direct.close();
  });
});
