import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { problemsOf, settled, type Visit, visit, WINDOWS } from "../support/console.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, makeOrganization, type RunningService, startService } from "../support/service.ts";

describe.skipIf(!hasBrowser)("tokens of developers", () => {
  let browser: Browser;
  let provider: IdentityProvider;
  let service: RunningService;

  beforeAll(async () => {
    const port = await freePort();
    provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
    [browser, service] = await Promise.all([launchBrowser(), startService({ config: {}, port })]);
    const { id: organization } = await makeOrganization(service, "10");
    await service.tollgate("token", "create", "--org", organization, "--name", "Capped", "--cap", "5");
    const roles = ["owner", "developer", "billing"].map((role) => ({ when: { sub: role }, role, organization }));
    const identity = { issuers: [{ ...provider.settings, roles }] };
    await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify({ identity }));
    const isReloaded = () => expect(service.output()).toContain("the configuration was reloaded");
    await vi.waitFor(isReloaded, { timeout: 60_000 });
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await provider?.close();
  });

  /** Opens a page, by default that of tokens, signed in with the provider. */
  async function signInAs(account: string, name = "Tokens"): Promise<Visit> {
    const visitor = await visit(browser, service);
    const { page } = visitor;
    // The provider's pages name a font of another host.
    await page.context().route(/^https:/, (route) => route.abort());
    await page.setViewportSize(WINDOWS.wide);
    await page.goto(`/${name.toLowerCase()}`);
    await page.getByRole("button", { name: "Sign in with Example Login" }).click();
    await page.getByPlaceholder("Enter any login").fill(account);
    await page.getByPlaceholder("and password").fill("any");
    await page.getByRole("button", { name: "Sign-in" }).click();
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("heading", { name, level: 1 }).waitFor();
    visitor.pageErrors.splice(0);
    return visitor;
  }

  /** Expects no problem of a page, in every size and theme. */
  async function expectFine(visitor: Visit, name: string): Promise<void> {
    expect(await problemsOf(visitor, name)).toEqual([]);
    await visitor.page.setViewportSize(WINDOWS.wide);
  }

  /** Creates a token as a developer, changes it, and opens its page. */
  async function makeOwnToken(page: Page, visitor: Visit, words: string): Promise<void> {
    await page.getByText("Your API tokens").waitFor();
    await page.getByRole("button", { name: "Create token" }).click();
    const form = page.getByRole("dialog", { name: "Create token" });
    await form.getByText(words).waitFor();
    await form.getByLabel("Name").fill("My editor");
    await form.getByLabel("Spending cap").fill("6");
    await form.getByRole("button", { name: "Create token" }).click();
    await form.getByText("cap is 6, but must be at most 5.").waitFor();
    visitor.pageErrors.splice(0);
    await expectFine(visitor, "create token");
    await form.getByLabel("Spending cap").fill("");
    await form.getByRole("button", { name: "Create token" }).click();
    await page.getByText("Copy it now. You won't see it again.").waitFor();
    await page.getByRole("button", { name: "Done" }).click();
    const row = page.getByRole("row", { name: /My editor/ });
    await row.getByText("0 of 5.00").waitFor();
    await row.getByRole("button", { name: "Edit My editor" }).click();
    const edit = page.getByRole("dialog", { name: "Edit My editor" });
    await edit.getByLabel("Spending cap").fill("3");
    await edit.getByRole("button", { name: "Save" }).click();
    await row.getByText("0 of 3.00").waitFor();
    await row.getByRole("link", { name: "My editor" }).click();
    await page.getByRole("heading", { name: "Settings" }).waitFor();
    await settled(page);
    await expectFine(visitor, "own token");
  }

  test("A developer creates and changes tokens within bounds that an owner sets, and the owner revokes one.", async () => {
    const owner = await signInAs("owner");
    const { page } = owner;
    await page.getByText("Only operators create tokens for this organization.").waitFor();
    await page.getByRole("button", { name: "Edit bounds" }).click();
    const bounds = page.getByRole("dialog", { name: "Tokens of developers" });
    await bounds.getByLabel("Tokens per person").fill("many");
    await bounds.getByLabel("Selected models").check();
    await bounds.getByLabel("sandbox/echo").check();
    await bounds.getByLabel("Highest spending cap").fill("5");
    await bounds.getByLabel("Longest life in days").fill("30");
    await bounds.getByRole("button", { name: "Save" }).click();
    await bounds.getByText("Enter a whole number from 0 to 1000.").waitFor();
    await expectFine(owner, "bounds");
    await bounds.getByLabel("Tokens per person").fill("2");
    await bounds.getByRole("button", { name: "Save" }).click();
    const words =
      "Each developer and owner can create 2 tokens. A token calls sandbox/echo, spends at most 5.00 credits, and expires within 30 days.";
    await page.getByText(words).waitFor();

    const developer = await signInAs("developer");
    await makeOwnToken(developer.page, developer, words);

    await page.reload();
    const row = page.getByRole("row", { name: /My editor/ });
    const revoke = row.getByRole("button", { name: "Revoke My editor" });
    await revoke.waitFor();
    expect(await row.getByRole("button").count()).toBe(1);
    await revoke.click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke token" }).click();
    await row.getByText("Revoked", { exact: true }).waitFor();
    expect([...owner.pageErrors, ...developer.pageErrors]).toEqual([]);
  });

  test("People of billing see the cap of a token, and nothing is refused on their page.", async () => {
    const { page } = await signInAs("billing", "Credits");
    const refused: string[] = [];
    page.on("response", (response) => response.status() >= 400 && refused.push(response.url()));
    await page.reload();
    await page
      .getByText(/^Requests of tok_/)
      .first()
      .waitFor();
    await settled(page);
    expect(refused).toEqual([]);
  });
});
