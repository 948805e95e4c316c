import type { TopUp } from "../api/admin/payment.ts";
import { minorUnits, moneyNumber, topUpTerms } from "../credits/money.ts";
import { ApiError } from "../errors.ts";
import type { TopUpChange, TopUpRow, TopUpState } from "../stores/queries/top-ups.ts";
import { argument, credits, facts, required, text } from "./command.ts";
import { type Core, invalidValue, knownOrganization, rowRecord } from "./core.ts";
import { requireCredits } from "./credits.ts";
import { amountOf, sharedOperation } from "./operation.ts";
import { checkoutsOf, RETURN_URL } from "./payments.ts";

const ORGANIZATION = { id: required("--org <id>", "organization whose credits are topped up") };
const ANSWER = { status: 200 as const, description: "The automatic top-up as it is now." };

export const showTopUp = sharedOperation({
  route: "GET /organizations/:id/top-up",
  permission: "credits:read",
  summary: "Show an organization's automatic top-up",
  answer: { ...ANSWER, schema: (s) => s.TopUp },
  handle: (core, { params: { id } }) => topUpOf(core, id),
  commands: (make) => [make.command({ usage: "credits auto show", flags: ORGANIZATION, text: topUpText })],
});

export const setTopUp = sharedOperation({
  route: "POST /organizations/:id/top-up",
  permission: "credits:buy",
  requestsAMinute: 10,
  summary: "Set and switch on the automatic top-up: a saved card is charged when fewer credits are available",
  body: (s) => s.NewTopUp,
  answer: { ...ANSWER, schema: (s) => s.TopUp },
  async handle(core, { params: { id }, body }) {
    await requireCredits(core, id);
    const { offers } = await topUpsOffered(core);
    const { price, currency } = offers.find(Number(body.amount));
    const monthlyMaximum = minorUnits(String(body.monthly_maximum), currency);
    const invalid = (expected: string) => invalidValue("monthly_maximum", String(body.monthly_maximum), expected);
    if (monthlyMaximum === undefined) throw invalid(`a valid amount of money in ${currency.toUpperCase()}`);
    if (monthlyMaximum < price) throw invalid("the amount of one charge or more");
    const terms = { threshold: amountOf("threshold", body.threshold), price, currency, monthlyMaximum };
    return change(core, id, "top_up.set", (state) => ({
      ...{ status: "on", reason: null, card: state?.row.card ?? null, ...terms },
      ...(state?.row.status === "on" ? {} : { setAtMs: core.clock() }),
      // The pauses between the attempts of a pending charge remain.
      nextAtMs: state?.pending === undefined ? 0 : state.row.nextAtMs,
    }));
  },
  commands: (make) => [
    make.command({
      usage: "credits auto set <amount>",
      summary: "Buy credits for an amount of money whenever fewer than a threshold are available",
      flags: {
        amount: argument("<amount>", text),
        ...ORGANIZATION,
        threshold: {
          ...required("--threshold <credits>", "buys credits when fewer are available"),
          read: (given: unknown) => credits(String(given), "--threshold"),
        },
        monthly_maximum: required("--monthly-maximum <amount>", "maximum amount of all charges of a month (UTC)"),
      },
      text: topUpText,
    }),
  ],
});

export const endTopUp = sharedOperation({
  route: "DELETE /organizations/:id/top-up",
  permission: "credits:buy",
  summary: "Switch off the automatic top-up",
  answer: { ...ANSWER, schema: (s) => s.TopUp },
  handle: (core, { params: { id } }) =>
    change(core, id, "top_up.end", (state) =>
      state === undefined || state.row.status === "off" ? undefined : { status: "off", reason: null },
    ),
  commands: (make) => [make.command({ usage: "credits auto off", flags: ORGANIZATION, text: topUpText })],
});

export const saveCard = sharedOperation({
  route: "POST /organizations/:id/top-up/card",
  permission: "credits:buy",
  requestsAMinute: 10,
  summary: "Begin to save the card of the automatic top-up: returns the address of Stripe's page",
  body: (s) => s.NewCard,
  answer: { status: 201, description: "The Checkout session.", schema: (s) => s.CardSetup },
  async handle(core, { params: { id: organizationId }, body: { return_url: returnUrl } }) {
    await requireCredits(core, organizationId);
    const { api } = await topUpsOffered(core);
    if ((await core.topUps.read(organizationId, core.clock())) === undefined)
      throw new ApiError("invalid_value", "Set the automatic top-up before its card is saved.");
    const { id, url } = await api.createSetup(organizationId, returnUrl);
    await core.admin.insertAudit(rowRecord(core, "top_up.card_setup", { organizationId, id }));
    return { object: "card_setup" as const, id, organization_id: organizationId, url };
  },
  commands: (make) => [
    make.command({
      usage: "credits auto card",
      summary: "Begin to save a card: prints the address of Stripe's page, where the customer enters it",
      flags: { ...ORGANIZATION, return_url: RETURN_URL },
      text: ({ url }) => facts({ url }),
    }),
  ],
});

async function topUpsOffered(core: Core) {
  const checkouts = await checkoutsOf(core);
  if (checkouts.offers.describe().automatic_top_up) return checkouts;
  throw new ApiError(
    "invalid_value",
    "Automatic top-up is not offered with `payments.stripe.automaticTax`: Stripe computes taxes on its own pages only.",
  );
}

/** Changes a top-up, with an audit record of its terms before and after; undefined: nothing changes. */
async function change(
  core: Core,
  id: string,
  action: string,
  decide: (state: TopUpState | undefined) => TopUpChange["row"] | undefined,
): Promise<TopUp> {
  await core.topUps.change(id, core.clock(), (state) => {
    const row = decide(state);
    if (row === undefined) return undefined;
    const [before, after] = [shownOf(state?.row), shownOf({ ...state?.row, ...row } as TopUpRow)];
    return { row, audit: rowRecord(core, action, { organizationId: id, id }, { before, after }) };
  });
  return topUpOf(core, id);
}

async function topUpOf(core: Core, id: string): Promise<TopUp> {
  await knownOrganization(core, id);
  const state = await core.topUps.read(id, core.clock());
  const { card = null, reason = null } = state?.row ?? {};
  return {
    ...{ object: "top_up", organization_id: id, ...shownOf(state?.row), reason },
    charged_this_month: state === undefined ? 0 : moneyNumber(state.used, state.row.currency),
    card: card && { brand: card.brand, last4: card.last4 },
  };
}

const UNSET = { status: "off" as const, threshold: null, amount: null, monthly_maximum: null, currency: null };

function shownOf(row: TopUpRow | undefined) {
  return row === undefined ? UNSET : { status: row.status, ...topUpTerms(row) };
}

function topUpText({ status, reason, threshold, amount, monthly_maximum, charged_this_month, card, currency }: TopUp) {
  if (threshold === null) return facts({ status });
  return facts({
    status: reason === null ? status : `${status}: ${reason}`,
    threshold: `${threshold} credits`,
    amount: `${amount} ${currency}`,
    charged: `${charged_this_month} of ${monthly_maximum} ${currency} this month`,
    card: card === null ? "none: save one with credits auto card" : `${card.brand} ${card.last4}`,
  });
}
