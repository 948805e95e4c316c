import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, signIn, visit } from "../support/console.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, makeOrganization, type RunningService, startService } from "../support/service.ts";

const LONG = { timeout: 240_000 };
const SHOWN = { timeout: 60_000 };

describe.skipIf(!hasBrowser)("vouchers in the console", () => {
  let browser: Browser;
  let provider: IdentityProvider;
  let service: RunningService;
  let page: Page;

  beforeAll(async () => {
    const port = await freePort();
    provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
    [browser, service] = await Promise.all([launchBrowser(), startService({ config: { playground: {} }, port })]);
    ({ page } = await visit(browser, service));
    // The identity provider's pages name a font of another host.
    await page.context().route(/^https:/, (route) => route.abort());
  }, 180_000);
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await provider?.close();
  });

  const dialog = () => page.getByRole("dialog");
  const press = (name: string, place: Page | ReturnType<typeof dialog> = page) =>
    place.getByRole("button", { name, exact: true }).click();

  /** Gives the account "owner" of the identity provider its role in an organization, by a reload. */
  async function admitOwner(organization: string): Promise<void> {
    const roles = [{ when: { sub: "owner" }, role: "owner", organization }];
    const identity = { issuers: [{ ...provider.settings, roles }] };
    await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify({ identity }));
    await vi.waitFor(() => expect(service.output()).toContain("the configuration was reloaded"), SHOWN);
  }

  test("An operator creates vouchers, an owner redeems one, and the operator revokes the others.", LONG, async () => {
    const { id } = await makeOrganization(service, "0");
    await admitOwner(id);
    await signIn(page, await adminTokenOf(service));
    await page.getByRole("link", { name: "Vouchers", exact: true }).click();
    await page.getByText("No vouchers", { exact: true }).waitFor(SHOWN);
    await press("Create vouchers");
    await press("Create vouchers", dialog());
    await dialog().getByText("Enter a name.").waitFor(SHOWN);
    await dialog().getByLabel("Name").fill("Workshop");
    await dialog().getByLabel("Number of vouchers").fill("3");
    await dialog().getByLabel("Credits each").fill("25");
    await dialog().getByText("Creates 3 vouchers, together worth 75.00 credits.").waitFor(SHOWN);
    await press("Create vouchers", dialog());
    const codes = (await dialog().getByLabel("Codes").inputValue()).split("\n");
    expect(codes).toHaveLength(3);
    const downloading = page.waitForEvent("download");
    await dialog().getByRole("link", { name: "Download CSV" }).click();
    const lines = codes.map((code) => `${code},25,\r\n`);
    expect(await readFile((await (await downloading).path()) ?? "", "utf8")).toBe(
      `code,credits,expires_at\r\n${lines.join("")}`,
    );
    await press("Done", dialog());
    await page.getByRole("row", { name: /Workshop/ }).waitFor(SHOWN);
    await press("Sign out");
    await page.getByRole("heading", { name: "Sign in" }).waitFor(SHOWN);

    await page.goto(`${service.url}/credits`);
    await press("Sign in with Example Login");
    await page.getByPlaceholder("Enter any login").fill("owner");
    await page.getByPlaceholder("and password").fill("any");
    await press("Sign-in");
    await press("Continue");
    await press("Redeem voucher");
    await dialog().getByLabel("Code").fill("7K3QX");
    await press("Redeem voucher", dialog());
    await dialog().getByText("there is no such voucher").waitFor(SHOWN);
    const typed = codes[0]?.toLowerCase().replaceAll("-", " ") ?? "";
    await dialog().getByLabel("Code").fill(typed);
    await press("Redeem voucher", dialog());
    await page.getByText("The voucher is redeemed: 25.00 credits were granted.").waitFor(SHOWN);
    await press("Redeem voucher");
    await dialog().getByLabel("Code").fill(typed);
    await press("Redeem voucher", dialog());
    await dialog().getByText("Your organization has already redeemed this voucher.").waitFor(SHOWN);
    await dialog().getByRole("button", { name: "Close" }).click();
    await press("Sign out");
    await press("Yes, sign me out");
    await page.getByRole("heading", { name: "Sign in" }).waitFor(SHOWN);

    await signIn(page, await adminTokenOf(service));
    await page.goto(`${service.url}/vouchers`);
    await press("Show vouchers of Workshop");
    const redeemed = dialog()
      .locator("tr")
      .filter({ hasText: `${codes[0]?.slice(0, 5)}…` });
    await redeemed.getByText("Redeemed", { exact: true }).waitFor(SHOWN);
    await redeemed.getByRole("link", { name: "Test" }).waitFor(SHOWN);
    await dialog().getByRole("button", { name: "Close" }).click();
    await press("Revoke Workshop");
    await dialog().getByText("2 vouchers that nobody has redeemed").waitFor(SHOWN);
    await press("Revoke vouchers", dialog());
    await page.getByRole("button", { name: "Revoke Workshop" }).waitFor({ state: "detached", ...SHOWN });
  });
});
