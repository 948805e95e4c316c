import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Stripe } from "stripe";
import type { StripeSettings } from "../config/payments-schema.ts";
import { formatCredits, type MicroCredits, parseCredits } from "../credits/amount.ts";
import type { PaymentRow } from "../credits/books.ts";
import { ApiError } from "../errors.ts";

/** Limits of the time between two packets of an answer, and of a whole request with its retry. */
const SOCKET_TIMEOUT_MS = 8_000;
const REQUEST_TIMEOUT_MS = 20_000;
/** Age and lead of a signed delivery, as Stripe's libraries allow by default. */
const TOLERANCE_SECONDS = 300;
const DISPUTES_MAX = 100;

/** Names of the metadata by which a session says whose it is and what it sells. */
const ORGANIZATION = "tollgate_organization";
const CREDITS = "tollgate_credits";
const PRICE = "tollgate_price";

/** States of disputes in which the money is with the operator: inquiries that withdraw nothing, and those that were won. */
const NOT_WITHDRAWN = new Set(["warning_needs_response", "warning_under_review", "warning_closed", "prevented", "won"]);

export interface StripeOptions {
  Client: typeof Stripe;
  settings: StripeSettings;
  /** Environment variables that name the proxy. */
  proxyVariables: Record<string, string>;
  /** For tests. */
  requestTimeoutMs?: number;
}

export interface NewSession {
  organizationId: string;
  price: bigint;
  credits: MicroCredits;
  returnUrl: string;
}

/** A payment as Stripe states it now, or why it is not one that this service can book. */
export type StatedPayment =
  | { ignored: string; level: "info" | "error" }
  | Pick<PaymentRow, "organizationId" | "currency" | "amount" | "credits" | "refunded" | "disputed">;

/** The only client of Stripe. Every request has a time limit, and fails with payment_provider_unavailable. */
export class StripeApi {
  readonly #client: Stripe;
  readonly #settings: StripeSettings;
  readonly #requestTimeoutMs: number;
  readonly #isLive: boolean;

  constructor({ Client, settings, proxyVariables, requestTimeoutMs = REQUEST_TIMEOUT_MS }: StripeOptions) {
    const { secretKey, apiUrl } = settings;
    const url = URL.parse(apiUrl ?? "");
    const agent = { keepAlive: true, proxyEnv: proxyVariables };
    this.#client = new Client(secretKey, {
      ...(url !== null && {
        host: url.hostname,
        port: url.port || (url.protocol === "http:" ? 80 : 443),
        protocol: url.protocol === "http:" ? "http" : "https",
      }),
      httpAgent: url?.protocol === "http:" ? new HttpAgent(agent) : new HttpsAgent(agent),
      ...{ timeout: Math.min(SOCKET_TIMEOUT_MS, requestTimeoutMs), maxNetworkRetries: 1, telemetry: false },
    });
    this.#settings = settings;
    this.#requestTimeoutMs = requestTimeoutMs;
    this.#isLive = secretKey.includes("_live_");
  }

  /** Creates a Checkout session. Its metadata says whose it is, and what it sells at the prices of now. */
  async createSession({ organizationId, price, credits, returnUrl }: NewSession) {
    const { currency, automaticTax } = this.#settings;
    const sold = formatCredits(credits);
    const metadata = { [ORGANIZATION]: organizationId, [CREDITS]: sold, [PRICE]: `${price} ${currency}` };
    const price_data = { currency, unit_amount: Number(price), product_data: { name: `${sold} credits` } };
    const { id, url } = await this.#request((client) =>
      client.checkout.sessions.create({
        ...{ mode: "payment", client_reference_id: organizationId, line_items: [{ quantity: 1, price_data }] },
        ...{ metadata, payment_intent_data: { metadata }, automatic_tax: { enabled: automaticTax } },
        ...{ success_url: `${returnUrl}?payment=paid`, cancel_url: `${returnUrl}?payment=canceled` },
      }),
    );
    if (typeof id === "string" && typeof url === "string") return { id, url };
    throw unusable("a session without a URL");
  }

  /** Returns the PaymentIntent that a delivery is about; none if there is nothing to book. Throws invalid_value for a wrong signature. */
  async paymentIdOf(body: Buffer, signature: string): Promise<{ id?: string; ignored?: string }> {
    let event: Stripe.Event;
    try {
      event = this.#client.webhooks.constructEvent(body, signature, this.#settings.webhookSecret, TOLERANCE_SECONDS);
    } catch (error) {
      throw new ApiError("invalid_value", "Invalid header 'Stripe-Signature': the signature or its time is wrong.", {
        ...{ param: "Stripe-Signature", cause: error },
      });
    }
    const { type, livemode, data } = event;
    if (!OF_PAYMENT.test(type)) return {};
    if (livemode !== this.#isLive)
      return { ignored: `${type} is of the other mode, live or test, than the secret key` };
    const { payment_intent: named } = data.object as { payment_intent?: string | { id: string } | null };
    const id = typeof named === "string" ? named : (named?.id ?? "");
    return PAYMENT_ID.test(id) ? { id } : { ignored: `${type} names no PaymentIntent` };
  }

  /** Reads a payment by its PaymentIntent. */
  async payment(id: string): Promise<StatedPayment> {
    const { data } = await this.#request((client) =>
      client.checkout.sessions.list({ payment_intent: id, limit: 1, expand: ["data.payment_intent.latest_charge"] }),
    );
    const [session] = data ?? [];
    const { [ORGANIZATION]: organizationId, [CREDITS]: sold = "", [PRICE]: price = "" } = session?.metadata ?? {};
    const [, wanted = "", currency = ""] = /^(\d{1,15}) ([a-z]{3})$/.exec(price) ?? [];
    const ignore = (ignored: string, level: "info" | "error" = "error") => ({ ignored, level });
    if (session === undefined || organizationId === undefined)
      return ignore("this service did not make its session", "info");
    if (session.livemode !== this.#isLive) return ignore("its session is of the other mode, live or test");
    if (session.payment_status !== "paid") return ignore(`its session is ${session.payment_status}`, "info");
    const credits = parseCredits(sold);
    if (credits === undefined || wanted === "") return ignore("the metadata of its session was changed");
    if (session.currency !== currency) return ignore(`it is in ${session.currency} instead of ${currency}`);
    const intent = session.payment_intent as Stripe.PaymentIntent;
    const charge = intent?.latest_charge as Stripe.Charge | null;
    if (intent?.id !== id || typeof charge?.id !== "string") throw unusable("a session without its charge");
    const amount = amountOf(session.amount_total);
    if (amount < BigInt(wanted) || amount === 0n) return ignore(`${amount} were paid instead of ${wanted}`);
    const disputed = charge.disputed ? await this.#disputed(id, { currency, amount }) : 0n;
    const refunded = amountOf(charge.amount_refunded);
    return { organizationId, currency, amount, credits, refunded, disputed };
  }

  /** Returns the money that disputes of a payment have withdrawn. */
  async #disputed(id: string, { currency, amount }: { currency: string; amount: bigint }): Promise<bigint> {
    const { data } = await this.#request((client) => client.disputes.list({ payment_intent: id, limit: DISPUTES_MAX }));
    const withdrawn = data.filter(({ status }) => !NOT_WITHDRAWN.has(status));
    return withdrawn.reduce((sum, one) => sum + (one.currency === currency ? amountOf(one.amount) : amount), 0n);
  }

  async #request<Answer>(question: (client: Stripe) => Promise<Answer>): Promise<Answer> {
    const timeout = Promise.withResolvers<never>();
    const timer = setTimeout(() => timeout.reject(unusable("no answer in time")), this.#requestTimeoutMs);
    try {
      return await Promise.race([question(this.#client), timeout.promise]);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const { type, code, statusCode } = error as { type?: string; code?: string; statusCode?: number };
      throw unusable([type, code, statusCode].filter((part) => part !== undefined).join(" ") || "no answer", error);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Events after which a payment is read again. All of them have an object that names the PaymentIntent. */
const OF_PAYMENT =
  /^(checkout\.session\.(completed|async_payment_succeeded)$|charge\.refund|refund\.|charge\.dispute\.)/;
const PAYMENT_ID = /^pi_[0-9A-Za-z_]{1,100}$/;

function amountOf(value: unknown): bigint {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return BigInt(value as number);
  throw unusable("an invalid amount");
}

/** Returns the error of a question that Stripe did not answer as documented. Only the log has the reason. */
function unusable(reason: string, cause?: unknown): ApiError {
  return new ApiError("payment_provider_unavailable", undefined, {
    loggedMessage: `Stripe: ${reason}`,
    cause: cause ?? new Error(`Stripe: ${reason}`),
  });
}
