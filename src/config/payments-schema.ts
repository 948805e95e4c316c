import { type Static, Type } from "typebox";
import { parseCredits } from "../credits/amount.ts";
import { creditsFor, minorUnits } from "../credits/money.ts";
import { DecimalText, Group, OptionalKeys, Strict } from "./upstream-schema.ts";

const Positive = (description: string) =>
  DecimalText({ format: "decimal-above-0", allowed: "a decimal number above 0, such as 12.50", description });

const StripeSchema = Strict({
  secretKey: Type.String({
    ...{ minLength: 1, description: "Secret or restricted key that may write Checkout sessions and read disputes." },
  }),
  webhookSecret: Type.String({
    ...{ minLength: 1, description: "Signing secret of the webhook endpoint `/webhooks/stripe`." },
  }),
  currency: Type.String({ format: "currency", description: "Currency of all payments." }),
  creditsPerUnit: Positive("Credits for one unit of the currency; rounded down to a millionth of a credit."),
  packages: Type.Array(
    Strict({
      amount: Positive("Price, without taxes that are added."),
      ...OptionalKeys({ credits: Positive("Credits, instead of those by `creditsPerUnit`.") }),
    }),
    { default: [], description: "Amounts that customers choose from." },
  ),
  ...OptionalKeys({
    customAmount: Strict({ minimum: Positive("Smallest amount."), maximum: Positive("Largest amount.") }),
  }),
  automaticTax: Type.Boolean({ default: false, description: "True to let Stripe Tax compute and collect taxes." }),
  ...OptionalKeys({
    apiUrl: Type.String({ format: "issuer", description: "Address of a stand-in for Stripe's API, for tests." }),
  }),
});
type Path = (string | number)[];
export type StripeSettings = Static<typeof StripeSchema>;
export const PaymentsSchema = Group(OptionalKeys({ stripe: StripeSchema }));

/** Returns the first contradiction among the settings of payments; undefined if there is none. */
export function paymentContradiction({
  stripe,
}: Static<typeof PaymentsSchema>): { path: Path; text: string } | undefined {
  if (stripe === undefined) return undefined;
  const { currency, creditsPerUnit, packages, customAmount } = stripe;
  const found = (path: Path, text: string) => ({ path: ["payments", "stripe", ...path], text });
  const prices: { path: Path; amount: string; credits?: string | undefined }[] = [
    ...packages.map((one, index) => ({ path: ["packages", index, "amount"], ...one })),
    ...Object.entries(customAmount ?? {}).map(([name, amount]) => ({ path: ["customAmount", name], amount })),
  ];
  const minor = (amount: string) => minorUnits(amount, currency) ?? 0n;
  const wrong = prices.find(({ amount }) => minor(amount) === 0n);
  if (wrong !== undefined) return found(wrong.path, `is ${wrong.amount}, which is not a valid amount in ${currency}.`);
  const index = packages.findIndex(({ credits }) => credits !== undefined && parseCredits(credits) === undefined);
  if (index >= 0) return found(["packages", index, "credits"], "must have at most 6 decimals.");
  const buysNothing = (amount: string) => creditsFor(minor(amount), currency, creditsPerUnit) === 0n;
  const worthless = prices.find(({ amount, credits }) => credits === undefined && buysNothing(amount));
  if (worthless !== undefined) return found(worthless.path, `is ${worthless.amount}, which buys 0 credits.`);
  const amounts = packages.map(({ amount }) => minor(amount));
  const repeated = amounts.findIndex((amount, at) => amounts.indexOf(amount) < at);
  if (repeated >= 0) return found(["packages", repeated, "amount"], "is the amount of an earlier package.");
  if (customAmount !== undefined && minor(customAmount.minimum) > minor(customAmount.maximum)) {
    return found(["customAmount"], "has a minimum above its maximum.");
  }
  if (prices.length > 0) return undefined;
  return found(["packages"], "is empty. Add a package, or set payments.stripe.customAmount.");
}
