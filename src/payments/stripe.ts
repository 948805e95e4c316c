import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Stripe } from "stripe";
import type { StripeSettings } from "../config/payments-schema.ts";
import { formatCredits, parseCredits } from "../credits/amount.ts";
import type { PaymentRow } from "../credits/books.ts";
import { ApiError } from "../errors.ts";
import type { TopUpCharge, TopUpRow } from "../stores/queries/top-ups.ts";

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
/** Marks the PaymentIntent of an automatic top-up, which has no session. */
const TOP_UP = "tollgate_top_up";

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

type NewSession = Pick<TopUpCharge, "organizationId" | "price" | "credits"> & { returnUrl: string };

/** Why something at Stripe is nothing that this service can use. */
interface Ignored {
  ignored: string;
  level: "info" | "error";
}
const NOT_OURS: Ignored = { ignored: "this service did not make its session", level: "info" };
const ignore = (ignored: string, level: Ignored["level"] = "error"): Ignored => ({ ignored, level });

/** A payment as Stripe states it now, or why it is not one that this service can book. */
export type StatedPayment =
  | Ignored
  | Pick<PaymentRow, "organizationId" | "currency" | "amount" | "credits" | "refunded" | "disputed">;

type Card = NonNullable<TopUpRow["card"]>;

/** State of the PaymentIntent of a top-up, and Stripe's code of why it is not paid. One that is missing may be of another account. */
export interface StatedTopUp {
  state: "unconfirmed" | "processing" | "paid" | "unpaid" | "canceled" | "missing";
  reason: string | null;
  cardId: string | null;
}

/** The only client of Stripe. Every request has a time limit, ends with the service, and fails with payment_provider_unavailable. */
export class StripeApi {
  readonly #client: Stripe;
  readonly #settings: StripeSettings;
  readonly #requestTimeoutMs: number;
  readonly #isLive: boolean;
  readonly #stopping = new AbortController();

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

  /** Ends all requests and refuses new ones: another process, or the next delivery of an event, continues. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Creates a Checkout session. Its metadata says whose it is, and what it sells at the prices of now. */
  async createSession({ organizationId, price, credits, returnUrl }: NewSession) {
    const { currency, automaticTax } = this.#settings;
    const sold = formatCredits(credits);
    const metadata = { [ORGANIZATION]: organizationId, [CREDITS]: sold, [PRICE]: `${price} ${currency}` };
    const price_data = { currency, unit_amount: Number(price), product_data: { name: `${sold} credits` } };
    return this.#newSession({
      ...{ mode: "payment", client_reference_id: organizationId, line_items: [{ quantity: 1, price_data }] },
      ...{ metadata, payment_intent_data: { metadata }, automatic_tax: { enabled: automaticTax } },
      ...{ success_url: `${returnUrl}?payment=paid`, cancel_url: `${returnUrl}?payment=canceled` },
    });
  }

  /** Creates a Checkout session that saves a card, with the consent to charge it later. */
  async createSetup(organizationId: string, returnUrl: string) {
    const metadata = { [ORGANIZATION]: organizationId };
    return this.#newSession({
      ...{ mode: "setup", payment_method_types: ["card"], customer_creation: "always", metadata },
      ...{ client_reference_id: organizationId, setup_intent_data: { metadata } },
      ...{ success_url: `${returnUrl}?card=saved`, cancel_url: `${returnUrl}?card=canceled` },
    });
  }

  async #newSession(parameters: Stripe.Checkout.SessionCreateParams): Promise<{ id: string; url: string }> {
    const { id, url } = await this.#request((client) => client.checkout.sessions.create(parameters));
    if (typeof id === "string" && typeof url === "string") return { id, url };
    throw unusable("a session without a URL");
  }

  /** Reads the card that a session has saved, or why there is none that this service can charge. */
  async savedCard(sessionId: string): Promise<Ignored | (Card & { organizationId: string })> {
    const { metadata, livemode, status, customer, setup_intent } = await this.#request((client) =>
      client.checkout.sessions.retrieve(sessionId, { expand: ["setup_intent.payment_method"] }),
    );
    const organizationId = metadata?.[ORGANIZATION];
    if (organizationId === undefined) return NOT_OURS;
    if (livemode !== this.#isLive) return ignore("its session is of the other mode, live or test");
    if (status !== "complete") return ignore(`its session is ${status}`);
    const method = (setup_intent as Stripe.SetupIntent)?.payment_method as Stripe.PaymentMethod | null;
    const { id, card, created } = method ?? {};
    if (typeof id !== "string" || !card || typeof created !== "number" || typeof customer !== "string")
      throw unusable("a session without its card");
    const { brand, last4 } = card;
    return { organizationId, customerId: customer, id, brand, last4, savedAtMs: created * 1000 };
  }

  /** Creates the PaymentIntent of a top-up, which charges nothing before it is confirmed; or says why Stripe refused it. */
  async createTopUp(
    { organizationId, id, price, currency, credits }: TopUpCharge,
    card: Card,
  ): Promise<{ id: string } | { refused: string }> {
    const sold = formatCredits(credits);
    const metadata = { [ORGANIZATION]: organizationId, [CREDITS]: sold, [PRICE]: `${price} ${currency}`, [TOP_UP]: id };
    const payer = { customer: card.customerId, payment_method: card.id, payment_method_types: ["card"] };
    const wanted = { amount: Number(price), currency, description: `${sold} credits`, metadata };
    const made = await this.#orRefusal((client) => client.paymentIntents.create({ ...wanted, ...payer }));
    if ("refused" in made) return made;
    if (PAYMENT_ID.test(made.id)) return { id: made.id };
    throw unusable("a PaymentIntent without an id");
  }

  /** Charges a top-up. Repeating it charges nothing again, because a PaymentIntent is paid once. */
  async confirm(paymentId: string): Promise<StatedTopUp> {
    const made = await this.#orRefusal((client) => client.paymentIntents.confirm(paymentId, { off_session: true }));
    const stated = await this.topUp(paymentId);
    const isRefused = stated.state === "unconfirmed" && "refused" in made;
    return isRefused ? { ...stated, state: "unpaid", reason: made.refused } : stated;
  }

  /** Cancels a top-up that is not paid, so that it never will be. Returns its state, which may be another one. */
  async cancel(paymentId: string): Promise<StatedTopUp> {
    await this.#orRefusal((client) => client.paymentIntents.cancel(paymentId));
    return this.topUp(paymentId);
  }

  /** Reads the state of a top-up. */
  async topUp(paymentId: string): Promise<StatedTopUp> {
    const intent = await this.#intent(paymentId);
    if (intent === undefined) return { state: "missing", reason: "payment_missing", cardId: null };
    const states: Record<string, StatedTopUp["state"]> = {
      ...{ requires_confirmation: "unconfirmed", requires_payment_method: "unpaid", requires_action: "unpaid" },
      ...{ succeeded: "paid", canceled: "canceled" },
    };
    const { status, last_payment_error, cancellation_reason, payment_method } = intent;
    const state = states[status] ?? "processing";
    // A cancellation by this service has no reason.
    const reason = last_payment_error?.code ?? cancellation_reason ?? (state === "unpaid" ? status : null);
    return { state, reason, cardId: payment_method as string | null };
  }

  /** Reads a PaymentIntent with its charge; undefined if Stripe has none of the id. */
  async #intent(id: string): Promise<Stripe.PaymentIntent | undefined> {
    const read = await this.#orRefusal((client) => client.paymentIntents.retrieve(id, { expand: ["latest_charge"] }));
    if ("refused" in read) return undefined;
    if (read.id === id) return read;
    throw unusable("another PaymentIntent");
  }

  /** Returns what a delivery is about, a PaymentIntent or a session that saves a card. Throws invalid_value for a wrong signature. */
  async subjectOf(body: Buffer, signature: string): Promise<{ id?: string; setupId?: string; ignored?: string }> {
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
    const subject = data.object as { id: string; mode?: string; payment_intent?: string | { id: string } | null };
    if (subject.mode === "setup") return { setupId: subject.id };
    // Another product of the same account sells it: this service sells no subscriptions.
    if (subject.mode === "subscription") return {};
    const named = type.startsWith("payment_intent.") ? subject.id : subject.payment_intent;
    const id = typeof named === "string" ? named : (named?.id ?? "");
    return PAYMENT_ID.test(id) ? { id } : { ignored: `${type} names no PaymentIntent` };
  }

  /** Reads a payment by its PaymentIntent. */
  async payment(id: string): Promise<StatedPayment> {
    const { data } = await this.#request((client) =>
      client.checkout.sessions.list({ payment_intent: id, limit: 1, expand: ["data.payment_intent.latest_charge"] }),
    );
    const [session = await this.#paidTopUp(id)] = data ?? [];
    const { [ORGANIZATION]: organizationId, [CREDITS]: sold = "", [PRICE]: price = "" } = session?.metadata ?? {};
    const [, wanted = "", currency = ""] = /^(\d{1,15}) ([a-z]{3})$/.exec(price) ?? [];
    if (session === undefined || organizationId === undefined) return NOT_OURS;
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

  /** Reads the PaymentIntent of a top-up in the form of a session; undefined if it is none. */
  async #paidTopUp(id: string) {
    const intent = await this.#intent(id);
    if (intent?.metadata[TOP_UP] === undefined) return undefined;
    const { metadata, livemode, currency, status, amount_received } = intent;
    const paid = { payment_status: status === "succeeded" ? "paid" : status, amount_total: amount_received };
    return { metadata, livemode, currency, payment_intent: intent, ...paid };
  }

  /** Returns the money that disputes of a payment have withdrawn. */
  async #disputed(id: string, { currency, amount }: { currency: string; amount: bigint }): Promise<bigint> {
    const { data } = await this.#request((client) => client.disputes.list({ payment_intent: id, limit: DISPUTES_MAX }));
    const withdrawn = data.filter(({ status }) => !NOT_WITHDRAWN.has(status));
    return withdrawn.reduce((sum, one) => sum + (one.currency === currency ? amountOf(one.amount) : amount), 0n);
  }

  /** Returns the answer of Stripe, or its code for why it refuses the request: it would refuse it again. */
  async #orRefusal<Answer extends object>(question: (client: Stripe) => Promise<Answer>) {
    try {
      return await this.#request(question);
    } catch (error) {
      const { statusCode = 0, code } = ((error as ApiError).cause ?? {}) as { statusCode?: number; code?: string };
      if ([400, 402, 404].includes(statusCode)) return { refused: code ?? "invalid_request" };
      throw error;
    }
  }

  async #request<Answer>(question: (client: Stripe) => Promise<Answer>): Promise<Answer> {
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(this.#requestTimeoutMs)]);
    const ended = Promise.withResolvers<never>();
    signal.addEventListener("abort", () => ended.reject(unusable("no answer in time")));
    try {
      signal.throwIfAborted();
      return await Promise.race([question(this.#client), ended.promise]);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const { type, code, statusCode } = error as { type?: string; code?: string; statusCode?: number };
      throw unusable([type, code, statusCode].filter((part) => part !== undefined).join(" ") || "no answer", error);
    }
  }
}

/** Events after which a payment is read again: their object is its PaymentIntent, or names it. */
const OF_PAYMENT =
  /^(checkout\.session\.(completed|async_payment_succeeded)$|payment_intent\.succeeded$|charge\.refund|refund\.|charge\.dispute\.)/;
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
