import type { Config } from "../config.ts";
import { Offers, Payments, type PaymentsOptions } from "../payments/payments.ts";
import { loadOptional } from "./parts.ts";

/** Creates the checkouts of Stripe; undefined if no payments are configured. Rejects with OperatorError if the package is missing. */
export async function createCheckouts({
  payments: { stripe: settings },
  proxyVariables,
}: Pick<Config, "payments" | "proxyVariables">) {
  if (settings === undefined) return undefined;
  const { Stripe: Client } = await loadOptional("payments.stripe needs", "stripe", () => import("stripe"));
  // It loads Node's own HTTP client, which nothing else needs.
  const { StripeApi } = await import("../payments/stripe.ts");
  return { offers: new Offers(settings), api: new StripeApi({ Client, settings, proxyVariables }) };
}

/** Creates the checkouts and the webhook receiver of Stripe; both are undefined if no payments are configured. */
export async function createPayments(config: Config, options: Omit<PaymentsOptions, "api">) {
  const checkouts = await createCheckouts(config);
  return { checkouts, payments: checkouts && new Payments({ ...options, ...checkouts }) };
}
