import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Page, Route } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { ORGANIZATION_ROLES, type Role } from "../../src/api/admin/roles.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { eventually, problemsOf, settled, type Visit, visit, WINDOWS } from "../support/console.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, makeOrganization, type RunningService, startService } from "../support/service.ts";

const BUTTON = { name: "Sign in with Example Login" };

describe.skipIf(!hasBrowser)("signing in with an identity provider", () => {
  let browser: Browser;
  let provider: IdentityProvider;
  let service: RunningService;
  let visitor: Visit;
  let page: Page;

  beforeAll(async () => {
    const port = await freePort();
    provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
    [browser, service] = await Promise.all([launchBrowser(), startService({ config: {}, port })]);
    const { id: organization } = await makeOrganization(service, "10");
    const ofOrganization = ORGANIZATION_ROLES.map((role) => ({ when: { sub: role }, role, organization }));
    const issuers = [{ ...provider.settings, roles: [...provider.settings.roles, ...ofOrganization] }];
    await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify({ identity: { issuers } }));
    const isReloaded = () => expect(service.output()).toContain("the configuration was reloaded");
    await vi.waitFor(isReloaded, { timeout: 60_000 });
  });
  beforeEach(async () => {
    visitor = await visit(browser, service);
    page = visitor.page;
    // The provider's pages name a font of another host.
    await page.context().route(/^https:/, (route) => route.abort());
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await provider?.close();
  });

  /** Errors of the console's own pages. */
  const errors = () => visitor.pageErrors.filter((error) => !/^asked (https:|http:\/\/127\.0\.0\.1:\d+\/)/.test(error));

  async function logIn(account: string, on = page): Promise<void> {
    await on.getByPlaceholder("Enter any login").fill(account);
    await on.getByPlaceholder("and password").fill("any");
    await on.getByRole("button", { name: "Sign-in" }).click();
    await on.getByRole("button", { name: "Continue" }).click();
  }

  test("An operator signs in, is back on the page that they opened, and signs out here and there.", async () => {
    await page.goto("/requests?status=failed");
    await page.getByRole("button", BUTTON).waitFor();
    expect(await problemsOf(visitor, "sign-in page")).toEqual([]);
    await page.setViewportSize(WINDOWS.wide);
    await page.getByRole("button", BUTTON).click();
    await logIn("ada");
    await page.getByRole("heading", { name: "Requests", level: 1 }).waitFor();
    expect(page.url()).toBe(`${service.url}/requests?status=failed`);
    await page.getByText("ada@example.com").first().waitFor();
    expect(await page.evaluate("localStorage.length + sessionStorage.length")).toBe(0);
    await page.getByRole("link", { name: "Organizations" }).click();
    await page.getByRole("button", { name: "Create organization" }).first().waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("button", { name: "Yes, sign me out" }).click();
    await page.getByRole("button", BUTTON).click();
    // The provider asks again: its own session has ended, too.
    await page.getByPlaceholder("Enter any login").waitFor();
    expect(errors()).toEqual([]);
  });

  test("A sign-in holds although an answer from before it arrives late.", async () => {
    await page.setViewportSize(WINDOWS.wide);
    await page.goto("/");
    await page.getByRole("button", BUTTON).click();
    const [shown, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const hold = async (route: Route) => {
      const response = await route.fetch();
      await shown.promise;
      // The console may have given the request up.
      await route.fulfill({ response }).catch(() => undefined);
      answered.resolve();
    };
    await page.route("**/admin/v1/session", hold, { times: 1 });
    await logIn("ada");
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    shown.resolve();
    await answered.promise;
    for (const name of ["Organizations", "Requests"]) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { name, level: 1 }).waitFor();
    }
    expect(errors()).toEqual([]);
  });

  test.each(ORGANIZATION_ROLES)(
    "The %s of an organization signs in, and opens each page of their role.",
    async (role) => {
      await page.setViewportSize(WINDOWS.wide);
      await page.goto("/");
      await page.getByRole("button", BUTTON).click();
      await logIn(role);
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
      const offered = PAGE_PATHS.filter(({ roles }) => (roles as readonly Role[]).includes(role)).map(
        ({ path }) => path,
      );
      const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
      const paths = await links.evaluateAll((all) =>
        all.map((link) => new URL((link as { href: string }).href).pathname),
      );
      expect(paths).toEqual(offered);
      for (const path of offered) {
        await page.getByRole("navigation", { name: "Pages" }).locator(`a[href="${path}"]`).click();
        await eventually(() => new URL(page.url()).pathname).toBe(path);
        await settled(page);
        expect(await page.getByRole("alert").count(), path).toBe(0);
      }
      expect(errors()).toEqual([]);
    },
  );

  test("A person without a role sees which account was used, and signs in with another one.", async () => {
    await page.goto("/");
    await page.getByRole("button", BUTTON).click();
    await logIn("stranger");
    const alert = page.getByRole("alert");
    await alert.getByText("No access").waitFor();
    await alert.getByText("You are signed in to Example Login as stranger").waitFor();
    expect(page.url()).toBe(`${service.url}/sign-in`);
    visitor.pageErrors.splice(0);
    expect(await problemsOf(visitor, "no access")).toEqual([]);
    await page.setViewportSize(WINDOWS.wide);
    await page.getByRole("button", { name: "Use another account at Example Login" }).click();
    await logIn("eve");
    await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    await page.getByText("Auditor", { exact: true }).first().waitFor();
    expect(errors()).toEqual([]);
  });

  test("A sign-in that is cancelled at the provider ends on a page that leads back.", async () => {
    await page.goto("/");
    await page.getByRole("button", BUTTON).click();
    await page.getByRole("link", { name: "Cancel" }).click();
    await page.getByText("The sign-in was cancelled, or Example Login refused it.").waitFor();
    await page.reload();
    await page.getByLabel("Token").waitFor();
    expect(page.url()).toBe(`${service.url}/`);
    expect(errors()).toEqual([]);
  });

  test("An answer that this browser did not ask for signs nobody in.", async () => {
    await page.goto(`/sign-in?code=of-an-attacker&state=${Date.now() + 60_000}.x`);
    await page.getByText("was not begun in this browser").waitFor();
    await page.getByRole("link", { name: "Other ways to sign in" }).click();
    await page.getByLabel("Token").waitFor();
    expect(errors()).toEqual([]);
  });

  test("A session that ends is renewed in a window of its own, and nothing that was typed is lost.", async () => {
    const { id } = await makeOrganization(service, "50");
    await page.goto(`/organizations/${id}`);
    await page.getByRole("button", BUTTON).click();
    await logIn("ada");
    await settled(page);
    await page.getByRole("button", { name: "Grant credits" }).click();
    const form = page.getByRole("dialog", { name: "Grant credits" });
    await form.getByLabel("Credits", { exact: true }).fill("12.5");
    await page.context().clearCookies({ name: "tollgate_session" });
    await form.getByRole("button", { name: "Grant credits" }).click();
    const again = page.getByRole("dialog", { name: "Sign in to continue" });
    const [popup] = await Promise.all([page.waitForEvent("popup"), again.getByRole("button", BUTTON).click()]);
    await again.waitFor({ state: "detached" });
    expect(await form.getByLabel("Credits", { exact: true }).inputValue()).toBe("12.5");
    await form.getByRole("button", { name: "Grant credits" }).click();
    await form.waitFor({ state: "detached" });
    await page.getByText("62.50").first().waitFor();
    await eventually(() => popup.isClosed()).toBe(true);
    expect(errors()).toEqual([]);
  });

  test("A provider that is away is named on the sign-in page, and a token still signs in.", async () => {
    const away = await startService({
      config: { identity: { issuers: [{ ...provider.settings, issuer: `http://127.0.0.1:${await freePort()}` }] } },
    });
    try {
      await page.goto(away.url);
      await page.getByRole("button", BUTTON).click();
      await page.getByText("Identity provider unavailable").waitFor();
      expect(await page.getByLabel("Token").isVisible()).toBe(true);
    } finally {
      await away.end();
    }
  });
});
