import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import OpenAI from "openai";
import type { Browser, Page } from "playwright-core";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Organization, StatementPage } from "../../console/src/api/types.ts";
import { formatAmount, formatChange, formatExactCredits } from "../../console/src/format/numbers.ts";
import { type AdminClient, operator } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, signIn, type Visit, visit, WINDOWS } from "../support/console.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { freePort, type RunningService, send, startService, usageOf } from "../support/service.ts";
import { StripeStandIn, signatureOf, stripeSettings } from "../support/stripe.ts";

const LONG = { timeout: 240_000 };
const SHOWN = { timeout: 60_000 };
const CUSTOMER = "Northwind";

describe.skipIf(!hasBrowser)("a day of a business", () => {
  const stripe = new StripeStandIn();
  const warnings: { body: string; headers: Record<string, string> }[] = [];
  const receiver = createServer(async (request, response) => {
    warnings.push({ body: await text(request), headers: request.headers as Record<string, string> });
    response.writeHead(204).end();
  });
  let browser: Browser;
  let provider: IdentityProvider;
  let service: RunningService;
  let admin: AdminClient;
  let visitor: Visit;
  let page: Page;
  let organizationId: string;

  beforeAll(async () => {
    const port = await freePort();
    await Promise.all([stripe.start(), once(receiver.listen(0, "127.0.0.1"), "listening")]);
    provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
    const config = {
      payments: { stripe: stripeSettings(stripe.url) },
      warnings: { allowPrivateAddresses: true },
      priceLists: { resale: { prices: { "sandbox/echo": { input: "12345.6789", output: "345678.912" } } } },
    };
    [browser, service] = await Promise.all([launchBrowser(), startService({ config, port })]);
    admin = operator(service);
    visitor = await visit(browser, service);
    ({ page } = visitor);
    await page.setViewportSize(WINDOWS.wide);
    // The identity provider's pages name a font of another host.
    await page.context().route(/^https:/, (route) => route.abort());
    // Stripe's page: the customer pays, and follows the link back.
    await page.route("https://checkout.stripe.test/**", (route) => {
      const back = stripe.forms.at(-1)?.get("success_url");
      return route.fulfill({ contentType: "text/html", body: `<a href="${back}">Pay and return</a>` });
    });
  }, 180_000);
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await provider?.close();
    await stripe.close();
    receiver.closeAllConnections();
    receiver.close();
  });

  const dialog = () => page.getByRole("dialog");
  const press = (name: string) => page.getByRole("button", { name, exact: true }).click();
  const open = (link: string) => page.getByRole("link", { name: link, exact: true }).click();
  const fill = (label: string, value: string) => dialog().getByLabel(label, { exact: true }).fill(value);
  const row = (words: string) => page.getByRole("row").filter({ hasText: words });
  const tab = (name: string) => page.getByRole("navigation", { name: /^Sections of/ }).getByRole("link", { name });
  /** Clicks the button of the dialog, and waits until the dialog has closed. */
  const confirm = async (name: string) => {
    await dialog().getByRole("button", { name, exact: true }).click();
    await dialog().waitFor({ state: "detached" });
  };
  /** Returns the secret that the dialog shows once, and closes the dialog. */
  const shownSecret = async () => {
    const secret = await dialog().locator(".secret").innerText();
    await confirm("Done");
    return secret;
  };
  const read = async <Body>(path = "") =>
    (await admin.call<Body>("GET", `/organizations/${organizationId}${path}`)).body;
  const credits = async () => (await read<Organization>()).credits;
  const statement = () => read<StatementPage>("/statement");
  const deliver = async (type: string, intent: string) => {
    const body = stripe.event(type, intent);
    const headers = { "stripe-signature": signatureOf(body) };
    expect((await send(service, "/webhooks/stripe", null, body, { method: "POST", headers })).status).toBe(200);
  };

  /** Expects the exact figures of the four tiles and of each line of the statement to be those of the admin API. */
  async function expectSameSums(): Promise<StatementPage["data"]> {
    const { available, held, used, total } = await credits();
    const exact = [available, held, used, total].map((value) => `${formatExactCredits(value)} credits`);
    const titles = () => page.locator(".tile").evaluateAll((tiles) => tiles.map((tile) => tile.getAttribute("title")));
    await eventually(titles).toEqual(exact);
    const { data, closing: end, totals } = await statement();
    const closing = end ?? Number.NaN;
    const region = page.getByRole("region", { name: "Statement" });
    const cells = () => region.locator("tbody tr td:nth-child(n+3)").allInnerTexts();
    const expected = data.flatMap(({ amount, balance }) => [formatChange(amount), formatAmount(balance)]);
    await eventually(cells).toEqual(expected);
    const facts = page.locator(".statement-totals");
    await facts.getByText(formatAmount(closing), { exact: true }).first().waitFor();
    await facts
      .getByText(formatChange(totals?.charge ?? 0), { exact: true })
      .first()
      .waitFor();
    expect(micro(closing)).toBe(micro(available));
    expect(data.reduce((sum, { amount }) => sum + micro(amount), 0n)).toBe(micro(closing));
    return data;
  }

  /** The operator creates the customer, agrees prices, and adds a receiver of warnings. */
  async function createCustomer(): Promise<{ token: string; webhook: Webhook }> {
    await signIn(page, await adminTokenOf(service));
    await open("Organizations");
    await press("New customer");
    await fill("Name", CUSTOMER);
    await fill("Credits", "1.5");
    await dialog().getByRole("button", { name: "Create customer" }).click();
    const token = await shownSecret();
    await page.getByRole("heading", { name: CUSTOMER, level: 1 }).waitFor();
    organizationId = new URL(page.url()).pathname.split("/").at(-1) ?? "";
    await tab("Settings").click();
    await press("Edit terms");
    await fill("Price list", "resale");
    await fill("External ID", "crm-4711");
    await confirm("Save");
    await page.getByText("crm-4711").waitFor();
    await page.goto("/warnings");
    await press("Add receiver");
    await fill("Name", "Account manager");
    await fill("Address", `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`);
    await dialog().getByRole("button", { name: "Add receiver" }).click();
    const webhook = new Webhook(await shownSecret());
    await row("Account manager").getByText("Active").waitFor();
    await press("Sign out");
    return { token, webhook };
  }

  /** The owner signs in, and buys credits. Returns the id of the payment. */
  async function buyCredits(): Promise<string> {
    await page.goto("/credits");
    await press("Sign in with Example Login");
    await page.getByPlaceholder("Enter any login").fill("owner");
    await page.getByPlaceholder("and password").fill("any");
    await press("Sign-in");
    await press("Continue");
    await press("Buy credits");
    await dialog().getByLabel("Amount", { exact: true }).selectOption("10");
    await dialog().getByText("Buys 100.00 credits.").waitFor();
    await press("Continue to payment");
    await page.getByRole("link", { name: "Pay and return" }).waitFor();
    const payment = stripe.pay(page.url().split("/").at(-1) ?? "");
    await page.getByRole("link", { name: "Pay and return" }).click();
    await page.getByText("Thank you. The payment appears here").waitFor();
    await deliver("checkout.session.completed", payment);
    await row(payment).first().getByText("Paid", { exact: true }).waitFor();
    expect(await credits()).toEqual({ available: 101.5, held: 0, used: 0, total: 101.5 });
    return payment;
  }

  /** The owner makes a key for an application. */
  async function makeKey(): Promise<string> {
    await open("Tokens");
    await press("Edit bounds");
    await fill("Tokens per person", "1");
    await confirm("Save");
    await press("Create token");
    await fill("Name", "Web shop");
    await dialog().getByRole("button", { name: "Create token" }).click();
    const key = await shownSecret();
    await row("Web shop").getByText("Active").waitFor();
    return key;
  }

  /** The application spends more than half of what was paid. Returns the cost of each answer. */
  async function spend(key: string): Promise<number[]> {
    const openai = new OpenAI({ apiKey: key, baseURL: service.baseUrl, maxRetries: 0 });
    const messages = [{ role: "user" as const, content: "good morning ".repeat(40) }];
    const request = { model: "sandbox/echo", messages, max_tokens: 100 };
    const answer = await openai.chat.completions.create(request);
    const costs = [costOf(answer.usage)];
    const streaming = { stream: true, stream_options: { include_usage: true } } as const;
    const stream = await openai.chat.completions.create({ ...request, ...streaming });
    let streamed = "";
    for await (const { choices, usage } of stream) {
      streamed += choices[0]?.delta.content ?? "";
      if (usage) costs.push(costOf(usage));
    }
    expect(streamed).toBe(answer.choices[0]?.message.content);
    return costs;
  }

  /** The owner reads the statement: the grant, the payment and both charges, to the micro-credit. */
  async function readStatement(payment: string, costs: number[]): Promise<void> {
    await open("Credits");
    const entries = await expectSameSums();
    expect(entries.map(({ kind, amount }) => [kind, micro(amount)])).toEqual([
      ["grant", 1_500_000n],
      ["grant", 100_000_000n],
      ...costs.map((cost) => ["charge", -micro(cost)]),
    ]);
    expect(entries[1]?.reference).toBe(payment);
    const downloading = page.waitForEvent("download");
    await page.getByRole("link", { name: "Export CSV" }).click();
    const csv = await readFile(await (await downloading).path(), "utf8");
    for (const { amount } of entries) expect(csv).toContain(`,${amount},`);
    await press("Sign out");
    await press("Yes, sign me out");
    await page.getByRole("button", { name: "Sign in with Example Login" }).waitFor();
  }

  /** The operator pays a fifth back at Stripe, and closes the account. */
  async function refundAndClose(payment: string, left: number): Promise<void> {
    await signIn(page, await adminTokenOf(service));
    await open("Organizations");
    await open(CUSTOMER);
    stripe.refund(payment, 200);
    await deliver("charge.refunded", payment);
    await row(payment).getByText("Partially refunded").waitFor();
    await row(payment).getByText("EUR 2.00").waitFor();
    expect(micro((await credits()).available)).toBe(micro(left) - 20_000_000n);
    await press("Close");
    await dialog()
      .getByText(`${formatAmount(left - 20)} credits are available`)
      .waitFor();
    await confirm("Close for good");
    await page.getByText("Closed", { exact: true }).waitFor();
    await tab("Statement").click();
    const all = await expectSameSums();
    expect(all.map(({ kind }) => kind)).toEqual(["grant", "grant", "charge", "charge", "revoke", "revoke"]);
    expect((await statement()).closing).toBe(0);
    await row("refunded or disputed, in part or in full").getByText("−20.00", { exact: true }).waitFor();
  }

  /** Gives the account "owner" of the identity provider its role in the customer's organization, by a reload. */
  async function admitOwner(): Promise<void> {
    const file = join(service.dataDir, "tollgate.yaml");
    const roles = [{ when: { sub: "owner" }, role: "owner", organization: organizationId }];
    const identity = { issuers: [{ ...provider.settings, roles }] };
    await writeFile(file, JSON.stringify({ ...JSON.parse(await readFile(file, "utf8")), identity }));
    await vi.waitFor(() => expect(service.output()).toContain("the configuration was reloaded"), SHOWN);
  }

  test("A customer pays, spends, is warned, gets a refund and leaves, and the books balance.", LONG, async () => {
    const { token, webhook } = await createCustomer();
    await admitOwner();
    const payment = await buyCredits();
    const key = await makeKey();
    const costs = await spend(key);
    await eventually(() => warnings.length).toBe(1);
    const [warning] = warnings;
    const { available: left } = await credits();
    expect(webhook.verify(warning?.body ?? "", warning?.headers ?? {})).toMatchObject({
      type: "credits.low",
      data: { organization_id: organizationId, percent: 50, last_top_up: 100, credits_left: left },
    });
    expect(micro((await usageOf(service, key)).creditsUsed)).toBe(micro((await credits()).used));
    await readStatement(payment, costs);
    await refundAndClose(payment, left);
    for (const ended of [token, key]) {
      await eventually(async () => (await send(service, "/v1/models", ended)).status).toBe(401);
    }
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
    const foreign = new RegExp(`^asked (https:|${provider.issuer})`);
    expect(visitor.pageErrors.filter((error) => !foreign.test(error))).toEqual([]);
  });
});

const micro = (credits: number) => BigInt(Math.round(credits * 1_000_000));

/** Cost in credits, which is an addition to OpenAI's usage. */
const costOf = (usage: object | undefined) => (usage as { cost: number }).cost;
