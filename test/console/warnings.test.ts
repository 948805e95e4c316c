import { writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, type Visit, visit } from "../support/console.ts";
import { type IdentityProvider, sessionCookie, signInAt, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, makeOrganization, type RunningService, startService } from "../support/service.ts";

interface Received {
  id: string;
  /** Throws if the request is not signed with this secret. */
  verify(secret: string): unknown;
}

/** Receivers of warnings in the console, on SQLite. A receiver on this machine gets what is sent. */
describe.skipIf(!hasBrowser)("the receivers of warnings", { timeout: 120_000 }, () => {
  let browser: Browser;
  let service: RunningService;
  let provider: IdentityProvider;
  let admin: AdminClient;
  let organizationId: string;
  let operating: Visit;
  let page: Page;
  let server: Server;
  let target: string;
  let status = 204;
  const received: Received[] = [];

  beforeAll(async () => {
    server = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      const headers = request.headers as Record<string, string>;
      received.push({ id: headers["webhook-id"] ?? "", verify: (secret) => new Webhook(secret).verify(body, headers) });
      response.writeHead(status).end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    target = `http://127.0.0.1:${(server.address() as AddressInfo).port}/secret-path`;
    const port = await freePort();
    provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
    const config = { warnings: { allowPrivateAddresses: true } };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config, port })]);
    admin = operator(service);
    organizationId = (await makeOrganization(service, "5")).id;
    const roles = [{ when: { sub: "owner" }, role: "owner", organization: organizationId }];
    const issuers = [{ ...provider.settings, roles }];
    await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify({ ...config, identity: { issuers } }));
    await vi.waitFor(() => expect(service.output()).toContain("the configuration was reloaded"), { timeout: 60_000 });
    operating = await visit(browser, service);
    page = operating.page;
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await provider?.close();
    server?.closeAllConnections();
    server?.close();
  });

  const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const dialog = () => page.getByRole("dialog");
  /** Clicks the button of the dialog, and waits until the dialog closes. */
  const confirm = async (name: string) => {
    await dialog().getByRole("button", { name, exact: true }).click();
    await dialog().waitFor({ state: "detached" });
  };
  const row = (text: string) => page.getByRole("row").filter({ hasText: text });
  /** Reads the secret that the dialog shows once. */
  const shownSecret = async () => {
    const secret = await dialog().locator(".secret").innerText();
    await confirm("Done");
    return secret;
  };

  let secret: string;

  test("The operator adds a webhook, sees its secret once, and sends it a test event.", async () => {
    await page.getByRole("link", { name: "Warnings", exact: true }).click();
    await page.getByText("No receivers").waitFor();
    await press("Add receiver");
    await dialog().getByLabel("Name").fill("Operations");
    await dialog().getByLabel("Address").fill("http://example.com/");
    await dialog().getByRole("button", { name: "Add receiver" }).click();
    await dialog().locator(".field-error").getByText("expected an https:// address").waitFor();
    await dialog().getByLabel("Address").fill(target);
    await dialog().getByRole("button", { name: "Add receiver" }).click();
    await dialog().getByText("You won't see it again").waitFor();
    secret = await shownSecret();
    expect(secret).toMatch(/^whsec_/);
    await row("Operations").getByText("The whole service").waitFor();
    await row("Operations").getByRole("link", { name: "Operations" }).click();
    await page.getByText("No deliveries").waitFor();
    expect(await page.content()).not.toContain(secret);
    await press("Send test event");
    await confirm("Send test event");
    await row("Test event").getByText("Delivered").waitFor();
    await row("Test event").getByText("HTTP 204").waitFor();
    expect(received.map(({ verify }) => verify(secret))).toEqual([expect.objectContaining({ type: "receiver.test" })]);
  });

  test("A delivery is sent again with the same id, signed with the old and the new secret.", async () => {
    await press("Replace secret");
    await dialog().getByRole("button", { name: "Replace secret" }).click();
    await dialog().getByText("You won't see it again").waitFor();
    const replaced = await shownSecret();
    expect(replaced).not.toBe(secret);
    await press("Send again");
    await confirm("Send again");
    await eventually(() => received.length).toBe(2);
    expect(new Set(received.map(({ id }) => id)).size).toBe(1);
    for (const one of [secret, replaced]) {
      expect(received[1]?.verify(one)).toMatchObject({ type: "receiver.test" });
    }
  });

  test("A receiver that fails is shown with the result and the next attempt, and is sent to again at once.", async () => {
    status = 500;
    await press("Send test event");
    await confirm("Send test event");
    const failing = row("Waiting");
    await failing.getByText("HTTP 500").waitFor();
    await failing.getByText(/, \d attempts?$/).waitFor();
    await failing.getByText(/^Next attempt (soon|in )/).waitFor();
    // It was enough to fail once.
    await page.reload();
    await page.getByText("Failing", { exact: true }).waitFor();
    status = 204;
    await failing.getByRole("button", { name: "Send now" }).click();
    await confirm("Send now");
    await failing.waitFor({ state: "detached" });
    await page.getByRole("combobox", { name: "State" }).selectOption("failed");
    await page.getByText("No matching deliveries").waitFor();
    await page.getByRole("combobox", { name: "State" }).selectOption("delivered");
    await eventually(() => row("Delivered").count()).toBe(2);
  });

  test("The operator changes, disables, enables and deletes a receiver.", async () => {
    await press("Edit");
    await dialog().getByLabel("Name").fill("On call");
    await dialog().getByRole("radio", { name: "Selected events" }).check();
    await dialog().getByLabel("Route down").check();
    await dialog().getByLabel("Price will change").check();
    await confirm("Save");
    await page.getByRole("heading", { name: "On call", level: 1 }).waitFor();
    await page.getByText("Route down, Price will change").waitFor();
    const listed = async () => (await admin.call<{ data: object[] }>("GET", "/receivers")).body.data;
    expect(await listed()).toMatchObject([{ name: "On call", kinds: ["route.down", "price.change"] }]);
    await press("Disable");
    await confirm("Disable");
    await page.getByText("Disabled", { exact: true }).waitFor();
    expect(await page.getByRole("button", { name: "Send test event" }).count()).toBe(0);
    await press("Enable");
    await confirm("Enable");
    await page.getByText("Active", { exact: true }).waitFor();
    await press("Delete");
    await confirm("Delete receiver");
    await page.getByText("This receiver does not exist").waitFor();
    expect(await listed()).toEqual([]);
  });

  test("An organization has its own receivers on its page.", async () => {
    await page.goto(`/organizations/${organizationId}?tab=warnings`);
    await press("Add receiver");
    await dialog().getByLabel("Name").fill("Customer");
    await dialog().getByLabel("Send as").selectOption("slack");
    await dialog().getByLabel("Address").fill("https://hooks.example.com/");
    await dialog().getByRole("radio", { name: "Selected events" }).check();
    expect(await dialog().getByLabel("Route down").count()).toBe(0);
    await dialog().getByLabel("Credits low").check();
    await dialog().getByRole("button", { name: "Add receiver" }).click();
    await shownSecret();
    await row("Customer").getByText("Credits low").waitFor();
    const { body } = await admin.call<{ data: { id: string }[] }>("GET", "/receivers");
    expect(body.data).toMatchObject([
      { organization_id: organizationId, name: "Customer", format: "slack", kinds: ["credits.low"] },
    ]);
    await admin.call("POST", `/receivers/${body.data[0]?.id}/test`);
    await page.goto("/warnings");
    const { name } = (await admin.call<{ name: string }>("GET", `/organizations/${organizationId}`)).body;
    const deliveries = page.getByRole("table", { name: "Deliveries" });
    await deliveries.getByRole("columnheader", { name: "Organization" }).waitFor();
    await deliveries.getByRole("row").filter({ hasText: "Test event" }).getByRole("link", { name }).waitFor();
  });

  test("An auditor sees all receivers, without buttons that change them.", async () => {
    await admin.call("POST", "/receivers", { name: "Service", format: "webhook", target });
    const auditor = await service.tollgate<{ token: string }>("operator", "create", "Ada", "--role", "auditor");
    const reader = await visit(browser, service);
    await signIn(reader.page, auditor.token);
    await reader.page.getByRole("link", { name: "Warnings", exact: true }).click();
    await reader.page.getByRole("region", { name: "Receivers" }).getByRole("link", { name: "Customer" }).waitFor();
    await reader.page.getByRole("link", { name: "Service" }).click();
    await reader.page.getByText(`${new URL(target).origin}/secr…`).waitFor();
    expect(await reader.page.content()).not.toContain("secret-path");
    await settled(reader.page);
    expect(await reader.page.getByRole("main").getByRole("button").count()).toBe(0);
    expect(reader.pageErrors).toEqual([]);
    await reader.close();
  });

  test("An owner sees the receivers of their organization alone, and adds one.", async () => {
    const [name = "", value = ""] = sessionCookie(await signInAt(service, provider.issuer, "owner")).split("=");
    const owning = await visit(browser, service);
    await owning.page.context().addCookies([{ name, value, url: service.url }]);
    await owning.page.goto("/warnings");
    const main = owning.page.getByRole("main");
    await main.getByRole("region", { name: "Receivers" }).getByRole("link", { name: "Customer" }).waitFor();
    expect(await main.getByRole("link", { name: "Service" }).count()).toBe(0);
    await main.getByRole("button", { name: "Add receiver" }).click();
    const form = owning.page.getByRole("dialog");
    expect(await form.getByLabel("Events of").count()).toBe(0);
    await form.getByLabel("Name").fill("Finance");
    await form.getByLabel("Address").fill(target.replace("http:", "https:"));
    await form.getByRole("button", { name: "Add receiver" }).click();
    await form.locator(".field-error").getByText("expected a public https:// address").waitFor();
    await form.getByLabel("Address").fill("https://hooks.example.com/");
    await form.getByRole("button", { name: "Add receiver" }).click();
    await form.getByText("You won't see it again").waitFor();
    await form.getByRole("button", { name: "Done" }).click();
    await main.getByRole("link", { name: "Finance" }).click();
    await main.getByText("Your organization").waitFor();
    expect(owning.pageErrors).toEqual([]);
    await owning.close();
    const { body } = await admin.call<{ data: { name: string; organization_id: string }[] }>("GET", "/receivers");
    expect(body.data.find((one) => one.name === "Finance")?.organization_id).toBe(organizationId);
  });

  test("No page reported an error.", () => expect(operating.pageErrors).toEqual([]));
});
