import { type Static, Type } from "typebox";
import { NumberOf, ObjectOf, TextOf } from "../schema.ts";
import { Amount, Entity, Id, Nullable, PositiveAmount, Strict, Time } from "./common.ts";

const Currency = TextOf("Currency code, such as eur. Amounts of money are in this currency.");

export const PaymentTerms = Entity("payment_terms", {
  organization_id: Id,
  offer: Nullable(
    ObjectOf("What can be bought; null if nothing can.", {
      currency: Currency,
      packages: Type.Array(Type.Object({ amount: Type.Number(), credits: Amount })),
      custom_amount: Nullable(
        ObjectOf("Range of amounts to choose from.", { minimum: Type.Number(), maximum: Type.Number() }),
      ),
      credits_per_unit: NumberOf("Credits for one unit of the currency; packages may differ."),
      automatic_top_up: Type.Boolean({ description: "Whether automatic top-up is offered: not with `automaticTax`." }),
    }),
  ),
  debt: NumberOf("Credits of refunded or disputed payments that were spent; the next payment covers them first."),
});
export type PaymentTerms = Static<typeof PaymentTerms>;

const Money = (description: string) => Type.Number({ exclusiveMinimum: 0, maximum: 1e12, description });
const ReturnUrl = (name: string, done: string) =>
  Type.String({
    ...{ pattern: "^https?://[\\w.:[\\]-]+(/[^?#\\s\\\\]*)?$", maxLength: 2_000 },
    description: `Address to return to from Stripe, with \`?${name}=${done}\` or \`?${name}=canceled\` added.`,
  });
const Price = Money("Price of a package, or a custom amount.");
export const NewCheckout = Strict({ amount: Price, return_url: ReturnUrl("payment", "paid") });
export const Checkout = Entity("checkout", {
  id: TextOf("Id of the Checkout session at Stripe."),
  organization_id: Id,
  url: TextOf("Address of Stripe's page, where the customer pays."),
  currency: Currency,
  amount: NumberOf("Price, without taxes that are added."),
  credits: Amount,
});

export const Payment = Entity("payment", {
  id: TextOf("Id of the PaymentIntent at Stripe."),
  organization_id: Id,
  status: Type.Enum(["paid", "partially_refunded", "refunded", "disputed", "withheld"], {
    description: "`withheld`: the closed organization was not granted credits. Refund their price in Stripe.",
  }),
  currency: Currency,
  ...{ amount: NumberOf("Money paid, with taxes."), refunded: Type.Number(), disputed: Type.Number() },
  credits: NumberOf("Credits that it bought."),
  granted: NumberOf("Credits granted, less those that were taken back."),
  debt_covered: NumberOf("Credits that covered debts of earlier payments."),
  withheld: NumberOf("Credits that are not granted, because the organization is closed."),
  debt: NumberOf(
    "Credits that were refunded or disputed after they were spent, and that no later payment has covered.",
  ),
  created_at: Time,
});
export type Payment = Static<typeof Payment>;

export const NewTopUp = Strict({
  threshold: Type.Number({ ...PositiveAmount, description: "Buys credits when fewer are available." }),
  amount: Price,
  monthly_maximum: Money("Maximum amount of all charges of a calendar month (UTC)."),
});
export const NewCard = Strict({ return_url: ReturnUrl("card", "saved") });
export const CardSetup = Entity("card_setup", {
  id: TextOf("Id of the Checkout session at Stripe."),
  organization_id: Id,
  url: TextOf("Address of Stripe's page, where the customer saves a card."),
});

export const TopUp = Entity("top_up", {
  organization_id: Id,
  status: Type.Enum(["off", "on", "paused"], {
    description: "`paused`: nothing is charged until it is set again or another card is saved; see `reason`.",
  }),
  reason: Nullable(
    TextOf(
      "Why it is paused: a code of Stripe such as `card_declined`, or `refunded`, `offer_changed`, `not_booked`, " +
        "`payment_missing` or `payment_provider_unavailable`.",
    ),
  ),
  threshold: Nullable(Amount),
  currency: Nullable(Currency),
  amount: Nullable(NumberOf("Price of each top-up.")),
  monthly_maximum: Nullable(Type.Number()),
  charged_this_month: NumberOf("Charges of this month (UTC) that are paid or under way."),
  card: Nullable(
    ObjectOf("The saved card. Nothing is charged without one.", { brand: Type.String(), last4: Type.String() }),
  ),
});
export type TopUp = Static<typeof TopUp>;
