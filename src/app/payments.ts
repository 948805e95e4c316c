import type { Config } from "../config.ts";
import { Offers, Payments, type PaymentsOptions } from "../payments/payments.ts";
import { TopUps } from "../payments/top-ups.ts";
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

/** Creates the checkouts, the webhook receiver and the automatic top-ups; nothing if no payments are configured. */
export async function createPayments(
  config: Config,
  options: Omit<PaymentsOptions, "api"> & { own(part: TopUps): TopUps },
) {
  const checkouts = await createCheckouts(config);
  if (checkouts === undefined) return { checkouts };
  const payments = new Payments({ ...options, ...checkouts });
  const everyMs = config.ledger.sweepSeconds * 1000;
  const topUps = options.own(new TopUps({ ...options, ...checkouts, rows: options.topUps, payments, everyMs }));
  return { checkouts, payments, topUps };
}
