import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, signIn, visit } from "../support/console.ts";
import { makeOrganization, type RunningService, startService } from "../support/service.ts";
import { StripeStandIn, signatureOf, stripeSettings } from "../support/stripe.ts";

const LONG = { timeout: 180_000 };
const SHOWN = { timeout: 60_000 };

describe.skipIf(!hasBrowser)("payments in the console", () => {
  let browser: Browser;
  let stripe: StripeStandIn;
  let service: RunningService;
  let page: Page;
  const button = (name: string) => page.getByRole("button", { name, exact: true });

  beforeAll(async () => {
    stripe = await new StripeStandIn().start();
    [browser, service] = await Promise.all([
      launchBrowser(),
      startService({ config: { payments: { stripe: stripeSettings(stripe.url) } } }),
    ]);
    ({ page } = await visit(browser, service));
    await signIn(page, await adminTokenOf(service));
    await page.route("https://checkout.stripe.test/**", (route) =>
      route.fulfill({ contentType: "text/html", body: "<h1>Pay here</h1>" }),
    );
  }, 180_000);
  afterAll(async () => {
    await browser?.close();
    await service?.end();
    await stripe?.close();
  });

  const deliver = (type: string, intent: string) => send(stripe.event(type, intent));
  const send = async (body: string) => {
    const headers = { "content-type": "application/json", "stripe-signature": signatureOf(body) };
    const answer = await fetch(`${service.url}/webhooks/stripe`, { method: "POST", headers, body });
    expect(answer.status).toBe(200);
  };

  test("An operator buys a package at Stripe, and sees on the way back when its credits arrive.", LONG, async () => {
    const { id } = await makeOrganization(service, "0");
    await page.goto(`/organizations/${id}`);
    await page.getByText("No payments yet").waitFor(SHOWN);
    await button("Buy credits").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Amount", { exact: true }).selectOption("50");
    await dialog.getByText("Buys 600.00 credits. You pay on Stripe's page.").waitFor(SHOWN);
    await button("Continue to payment").click();
    await page.getByRole("heading", { name: "Pay here" }).waitFor(SHOWN);
    const session = page.url().split("/").at(-1) ?? "";
    const intent = stripe.pay(session);
    await page.goto(stripe.forms.at(-1)?.get("success_url") ?? "");
    await page.getByText("Thank you. The payment appears here").waitFor(SHOWN);
    await deliver("checkout.session.completed", intent);
    const row = page.getByRole("row").filter({ has: page.getByRole("cell", { name: intent, exact: true }) });
    await row.getByText("EUR 50.00").waitFor(SHOWN);
    await row.getByText("600.00").waitFor(SHOWN);
    stripe.refund(intent, 5_000);
    await deliver("charge.refunded", intent);
    await row.getByText("Refunded", { exact: true }).waitFor(SHOWN);
    await page.goto(stripe.forms.at(-1)?.get("cancel_url") ?? "");
    await page.getByText("The payment was canceled. Nothing was charged.").waitFor(SHOWN);
  });

  test("A debt is shown until a payment covers it, and an amount outside of the range is refused.", LONG, async () => {
    const { id, token } = await makeOrganization(service, "0");
    const session = await fetch(`${service.url}/admin/v1/organizations/${id}/checkouts`, {
      method: "POST",
      headers: { authorization: `Bearer ${await adminTokenOf(service)}`, "content-type": "application/json" },
      body: JSON.stringify({ amount: 5, return_url: service.url }),
    });
    const intent = stripe.pay(((await session.json()) as { id: string }).id);
    await deliver("checkout.session.completed", intent);
    const completion = { model: "sandbox/echo", messages: [{ role: "user", content: "hello there" }], max_tokens: 20 };
    const asked = await fetch(`${service.baseUrl}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify(completion),
    });
    expect(asked.status).toBe(200);
    stripe.refund(intent, 500);
    await deliver("charge.refunded", intent);
    await page.goto(`/organizations/${id}`);
    await page.getByText("The next payment covers them first.").waitFor(SHOWN);
    await button("Buy credits").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Amount", { exact: true }).selectOption("other");
    await dialog.getByLabel("Other amount in EUR").fill("4.99");
    await button("Continue to payment").click();
    await dialog.getByText("Enter an amount from EUR 5.00 to EUR 500.00.").waitFor(SHOWN);
  });

  test("An operator sets an automatic top-up, saves its card at Stripe, and switches it off.", LONG, async () => {
    const { id } = await makeOrganization(service, "1000");
    await page.goto(`/organizations/${id}`);
    await button("Set up").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Threshold in credits").fill("50");
    await dialog.getByLabel("Amount", { exact: true }).selectOption("other");
    await dialog.getByLabel("Other amount in EUR").fill("12");
    await dialog.getByLabel("Monthly maximum in EUR").fill("11");
    await button("Save").click();
    await dialog.getByText("Must be at least the amount.").waitFor(SHOWN);
    await dialog.getByLabel("Monthly maximum in EUR").fill("36");
    await dialog.getByText("Buys 120.00 credits for EUR 12.00 when fewer than 50.00 are available.").waitFor(SHOWN);
    await button("Save").click();
    await page.getByRole("heading", { name: "Pay here" }).waitFor(SHOWN);
    const body = stripe.save(page.url().split("/").at(-1) ?? "");
    await page.goto(stripe.forms.at(-1)?.get("success_url") ?? "");
    await page.getByText("The card appears here as soon as Stripe confirms it.").waitFor(SHOWN);
    await send(body);
    await page.getByText(/^visa ending in 4/).waitFor(SHOWN);
    await page.getByText("EUR 0.00 of at most EUR 36.00").waitFor(SHOWN);
    await button("Replace card").click();
    await page.getByRole("heading", { name: "Pay here" }).waitFor(SHOWN);
    await page.goto(stripe.forms.at(-1)?.get("cancel_url") ?? "");
    await page.getByText("No card was saved.").waitFor(SHOWN);
    await button("Switch off").click();
    await dialog.getByRole("button", { name: "Switch off" }).click();
    await button("Set up").waitFor(SHOWN);
  });

  test("Without a configuration there is no button.", LONG, async () => {
    const plain = await startService();
    try {
      const { id } = await makeOrganization(plain, "1");
      const { page: other } = await visit(browser, plain);
      await signIn(other, await adminTokenOf(plain));
      await other.goto(`/organizations/${id}`);
      await other.getByRole("heading", { name: "Grants" }).waitFor(SHOWN);
      expect(await other.getByRole("button", { name: "Buy credits" }).count()).toBe(0);
      expect(await other.getByRole("heading", { name: "Automatic top-up" }).count()).toBe(0);
    } finally {
      await plain.end();
    }
  });
});
