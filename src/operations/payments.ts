import { pageOf, positionOf } from "../admin/directory.ts";
import type { Payment } from "../api/admin/payment.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { PaymentRow } from "../credits/books.ts";
import { moneyNumber } from "../credits/money.ts";
import { openDebt } from "../credits/payments.ts";
import { ApiError } from "../errors.ts";
import { argument, facts, required, text } from "./command.ts";
import { type Checkouts, type Core, rowRecord } from "./core.ts";
import { requireCredits } from "./credits.ts";
import { operation, sharedOperation } from "./operation.ts";

export const showPaymentTerms = operation({
  route: "GET /organizations/:id/payment-terms",
  permission: "credits:read",
  summary: "Show what an organization can buy, and the debt that its next payment covers first",
  answer: { status: 200, description: "The terms.", schema: (s) => s.PaymentTerms },
  async handle(core, { params: { id } }) {
    const [organization, debt, checkouts] = await Promise.all([
      core.accounts.organization(id),
      core.payments.debt(id),
      core.checkouts(),
    ]);
    const canBuy = organization?.kind === "standard" && organization.status !== "closed";
    const offer = (canBuy && checkouts?.offers.describe()) || null;
    return { object: "payment_terms", organization_id: id, offer, debt: creditsFromMicro(debt) };
  },
});

export const listPayments = operation({
  route: "GET /organizations/:id/payments",
  permission: "credits:read",
  summary: "List an organization's payments, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Payment) },
  async handle(core, { params: { id: organizationId }, page: { cursor, limit } }) {
    const rows = await core.payments.list({ organizationId, before: positionOf(cursor), limit: limit + 1 });
    return pageOf(rows, limit, toPayment, ({ createdAtMs, id }) => `${createdAtMs}_${id}`);
  },
});

export const RETURN_URL = required(
  "--return-url <url>",
  "address to which Stripe returns, such as https://ai.example.com",
);

export const createCheckout = sharedOperation({
  route: "POST /organizations/:id/checkouts",
  permission: "credits:buy",
  requestsAMinute: 10,
  summary: "Start a payment: returns the address of Stripe's page; credits are granted once Stripe reports the payment",
  body: (s) => s.NewCheckout,
  answer: { status: 201, description: "The Checkout session.", schema: (s) => s.Checkout },
  async handle(core, { params: { id: organizationId }, body: { amount, return_url: returnUrl } }) {
    await requireCredits(core, organizationId);
    const { offers, api } = await checkoutsOf(core);
    const { price, currency, credits } = offers.find(Number(amount));
    const { id, url } = await api.createSession({ organizationId, price, credits, returnUrl });
    const sold = { amount: moneyNumber(price, currency), currency, credits: creditsFromMicro(credits) };
    await core.admin.insertAudit(rowRecord(core, "payment.checkout", { organizationId, id }, { after: sold }));
    return { object: "checkout" as const, id, organization_id: organizationId, url, ...sold };
  },
  commands: (make) => [
    make.command({
      usage: "credits buy <amount>",
      summary: "Start a payment: prints the address of Stripe's page, where the customer pays",
      flags: {
        amount: argument("<amount>", text),
        id: required("--org <id>", "organization that buys credits"),
        return_url: RETURN_URL,
      },
      text: ({ amount, currency, credits, url }) => facts({ credits, price: `${amount} ${currency}`, url }),
    }),
  ],
});

/** Returns the checkouts of Stripe. Rejects with invalid_value if payments are not configured. */
export async function checkoutsOf(core: Pick<Core, "checkouts">): Promise<Checkouts> {
  const checkouts = await core.checkouts();
  if (checkouts !== undefined) return checkouts;
  throw new ApiError("invalid_value", "Payments are not configured: see `payments.stripe`.");
}

function toPayment(row: PaymentRow): Payment {
  const { id, organizationId: organization_id, amount, refunded, disputed, withheld, createdAtMs } = row;
  const money = (minor: bigint) => moneyNumber(minor, row.currency);
  const partly = refunded > 0n ? "partially_refunded" : "paid";
  const settled = refunded >= amount ? "refunded" : withheld > 0n ? "withheld" : partly;
  return {
    ...{ object: "payment", id, organization_id, status: disputed > 0n ? "disputed" : settled, currency: row.currency },
    ...{ amount: money(amount), refunded: money(refunded), disputed: money(disputed) },
    credits: creditsFromMicro(row.credits),
    granted: creditsFromMicro(row.granted - row.revoked),
    debt_covered: creditsFromMicro(row.covered),
    withheld: creditsFromMicro(withheld),
    debt: creditsFromMicro(openDebt(row)),
    created_at: isoTime(createdAtMs),
  };
}
