import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { Stripe } from "stripe";
import type { StripeSettings } from "../../src/config/payments-schema.ts";

const WEBHOOK_SECRET = "whsec_test_0123456789";
const SECRET_KEY = "sk_test_0123456789";

interface Paid {
  session: Record<string, unknown> & { id: string; metadata: Record<string, string> };
  intent: string | null;
  refunded: number;
  disputes: { id: string; amount: number; currency: string; status: string }[];
}

/** A PaymentIntent of an automatic top-up. */
interface ChargedIntent {
  id: string;
  status: string;
  form: URLSearchParams;
  metadata: Record<string, string>;
  error: string | null;
  cancellationReason: string | null;
  confirmedAtMs: number | null;
  refunded: number;
}

/** Settings of payments in euros, one of which buys 10 credits. */
export function stripeSettings(apiUrl: string, rest: Partial<StripeSettings> = {}): StripeSettings {
  return {
    ...{ secretKey: SECRET_KEY, webhookSecret: WEBHOOK_SECRET, currency: "eur", creditsPerUnit: "10" },
    ...{
      packages: [{ amount: "10" }, { amount: "50", credits: "600" }],
      customAmount: { minimum: "5", maximum: "500" },
    },
    ...{ automaticTax: false, apiUrl, ...rest },
  };
}

export const signatureOf = (body: string, secret = WEBHOOK_SECRET, timestamp = Math.floor(Date.now() / 1000)) =>
  Stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp });

/** The part of Stripe's API that the service asks, with the shapes of the library's types. */
export class StripeStandIn {
  /** The way in which it answers: as documented, with a failure, with no answer, with something else, or by closing the connection. */
  mode: "ok" | "failing" | "silent" | "odd" | "closing" = "ok";
  asked = 0;
  /** Faults of the next requests: they are lost, or their answers are. */
  readonly faults: ("lost" | "answer_lost" | "none")[] = [];
  /** The outcome of charging a saved card: it is charged, at once or later, or refused with this code. */
  card: "charged" | "processing" | "removed" | "requires_action" | "card_declined" | "authentication_required" =
    "charged";
  /** The time that it notes of confirmations. */
  clock = () => Date.now();
  /** PaymentIntents of top-ups, in the order in which they were created. */
  readonly intents = new Map<string, ChargedIntent>();
  /** Called before a card is charged. */
  onConfirm: () => Promise<void> = async () => {};
  readonly #answers = new Map<string, { question: string; status: number; body: unknown }>();
  /** The forms that created sessions. */
  readonly forms: URLSearchParams[] = [];
  #cards = 0;
  readonly #sessions = new Map<string, Paid>();
  readonly #server = createServer((request, response) => void this.#answer(request, response));

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** The customer pays a session; returns the id of the PaymentIntent. */
  pay(sessionId: string, changes: Record<string, unknown> = {}): string {
    const paid = this.#sessions.get(sessionId);
    if (paid === undefined) throw new Error(`no session ${sessionId}`);
    paid.intent ??= `pi_${randomBytes(8).toString("hex")}`;
    Object.assign(paid.session, { payment_status: "paid", status: "complete", ...changes });
    return paid.intent;
  }

  /** The customer saves a card on the page of a session. */
  save(sessionId: string, changes: Record<string, unknown> = {}): string {
    const found = this.#sessions.get(sessionId);
    if (found === undefined) throw new Error(`no session ${sessionId}`);
    this.#cards += 1;
    const card = { brand: "visa", last4: String(4000 + this.#cards) };
    const payment_method = { id: `pm_${this.#cards}`, object: "payment_method", created: this.#cards, card };
    const setup_intent = { id: `seti_${this.#cards}`, object: "setup_intent", status: "succeeded", payment_method };
    Object.assign(found.session, { status: "complete", customer: `cus_${this.#cards}`, setup_intent, ...changes });
    const object = { ...found.session, setup_intent: setup_intent.id, payment_intent: null };
    return this.#eventOf("checkout.session.completed", object);
  }

  /** An operator cancels a top-up in the dashboard. */
  cancel(id: string): void {
    Object.assign(this.intents.get(id) ?? {}, { status: "canceled", cancellationReason: "requested_by_customer" });
  }

  /** Settles a charge that was processing. */
  settle(id: string, status: "succeeded" | "requires_payment_method"): void {
    const error = status === "succeeded" ? null : "card_declined";
    Object.assign(this.intents.get(id) ?? {}, { status, error });
  }

  /** Answers as documented again, and forgets all top-ups. */
  reset(): void {
    Object.assign(this, { mode: "ok", card: "charged", onConfirm: async () => {} });
    this.faults.length = 0;
    this.intents.clear();
    this.#answers.clear();
  }

  refund(intent: string, amount: number): void {
    const own = this.intents.get(intent);
    if (own !== undefined) {
      own.refunded = Math.min(Number(own.form.get("amount")), own.refunded + amount);
      return;
    }
    const paid = this.#paidBy(intent);
    paid.refunded = Math.min(paid.session.amount_total as number, paid.refunded + amount);
  }

  /** Sets what is refunded: less than before where a refund failed. */
  setRefunded(intent: string, amount: number): void {
    this.#paidBy(intent).refunded = amount;
  }

  dispute(intent: string, amount: number, status = "needs_response"): void {
    const { disputes } = this.#paidBy(intent);
    disputes.push({ id: `dp_${disputes.length}`, amount, currency: "eur", status });
  }

  endDisputes(intent: string, status: "won" | "lost"): void {
    for (const dispute of this.#paidBy(intent).disputes) dispute.status = status;
  }

  /** Returns the body of an event about a payment. */
  event(type: string, intent: string, rest: Record<string, unknown> = {}): string {
    if (type.startsWith("payment_intent.")) return this.#eventOf(type, { object: "payment_intent", id: intent }, rest);
    const object = type.startsWith("checkout.") ? this.#paidBy(intent).session : { object: "charge", id: "ch_1" };
    return this.#eventOf(type, { ...object, payment_intent: intent }, rest);
  }

  #eventOf(type: string, object: object, rest: Record<string, unknown> = {}): string {
    const id = `evt_${randomBytes(8).toString("hex")}`;
    return JSON.stringify({ id, object: "event", type, livemode: false, created: 1, data: { object }, ...rest });
  }

  #paidBy(intent: string): Paid {
    const paid = [...this.#sessions.values()].find((one) => one.intent === intent);
    if (paid === undefined) throw new Error(`no payment ${intent}`);
    return paid;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://stripe.test");
    const form = new URLSearchParams(await text(request));
    this.asked += 1;
    if (this.mode === "silent") return;
    const fault = this.faults.shift() ?? "none";
    if (this.mode === "closing" || fault === "lost") return void request.socket.destroy();
    const send = (status: number, body: unknown) => {
      if (fault === "answer_lost") return void request.socket.destroy();
      response.writeHead(status, { "content-type": "application/json", "request-id": "req_1" });
      response.end(JSON.stringify(body));
    };
    if (request.headers.authorization !== `Bearer ${SECRET_KEY}`) return send(401, { error: { message: "no" } });
    const key = String(request.headers["idempotency-key"]);
    if (this.mode === "failing") {
      const failure = { status: 500, body: { error: { type: "api_error", message: "down" } } };
      // Stripe repeats failures of a key too.
      if (request.method === "POST") this.#answers.set(key, { question: `${url.pathname} ${form}`, ...failure });
      return send(failure.status, failure.body);
    }
    if (this.mode === "odd") return send(200, { object: "list", data: [{ ...this.#odd(), id: 7 }] });
    if (url.pathname.startsWith("/v1/payment_intents")) {
      const { status, body } = await this.#onIntents(request.method ?? "", url.pathname, form, key);
      return send(status, body);
    }
    const [, named = ""] = /^\/v1\/checkout\/sessions\/(\w+)$/.exec(url.pathname) ?? [];
    if (named !== "") return send(200, this.#sessions.get(named)?.session);
    if (url.pathname === "/v1/checkout/sessions" && request.method === "POST") return send(200, this.#create(form));
    const intent = url.searchParams.get("payment_intent") ?? "";
    const list = (data: unknown[]) => send(200, { object: "list", has_more: false, url: url.pathname, data });
    const paid = [...this.#sessions.values()].find((one) => one.intent === intent);
    if (url.pathname === "/v1/disputes") return list(paid?.disputes ?? []);
    if (url.pathname !== "/v1/checkout/sessions") return send(404, { error: { message: "unknown" } });
    list(paid === undefined ? [] : [{ ...paid.session, payment_intent: intentOf(paid) }]);
  }

  async #onIntents(method: string, path: string, form: URLSearchParams, key: string) {
    if (method === "GET") return this.#stateOf(path.split("/")[3] ?? "");
    const question = `${path} ${form}`;
    const known = this.#answers.get(key);
    if (known !== undefined) {
      return known.question === question ? known : refusal(400, "idempotency_error", "idempotency_error");
    }
    const answer = await this.#change(path, form);
    // The library makes keys of its own for other requests.
    this.#answers.set(key, { question, ...answer });
    return answer;
  }

  async #change(path: string, form: URLSearchParams) {
    const [, , , id, verb] = path.split("/");
    if (id === undefined) {
      if (this.card === "removed") return refusal(400, "resource_missing");
      const made = { id: `pi_${randomBytes(8).toString("hex")}`, status: "requires_confirmation" };
      this.intents.set(made.id, { ...made, form, metadata: metadataOf(form), ...UNPAID });
      return this.#stateOf(made.id);
    }
    if (verb === "confirm") await this.onConfirm();
    const intent = this.intents.get(id);
    if (intent === undefined) return refusal(404, "resource_missing");
    const isOpen = ["requires_confirmation", "requires_payment_method", "requires_action"].includes(intent.status);
    if (!isOpen || (verb === "confirm" && intent.status !== "requires_confirmation"))
      return refusal(400, "payment_intent_unexpected_state");
    if (verb === "cancel") intent.status = "canceled";
    else if (this.card === "removed") return refusal(400, "resource_missing");
    else if (this.card === "charged" || this.card === "processing") {
      const status = this.card === "charged" ? "succeeded" : "processing";
      Object.assign(intent, { status, confirmedAtMs: this.clock() });
    } else if (this.card === "requires_action") intent.status = "requires_action";
    else {
      Object.assign(intent, { status: "requires_payment_method", error: this.card });
      return refusal(402, this.card, "card_error");
    }
    return this.#stateOf(id);
  }

  #stateOf(id: string) {
    const intent = this.intents.get(id);
    if (intent === undefined) return refusal(404, "resource_missing");
    const { status, form, metadata, error, cancellationReason, refunded } = intent;
    const amount = Number(form.get("amount"));
    const charge = { id: `ch_${id}`, object: "charge", amount, amount_refunded: refunded, disputed: false };
    const body = {
      ...{ id, object: "payment_intent", livemode: false, status, amount, currency: form.get("currency") },
      ...{ amount_received: status === "succeeded" ? amount : 0, metadata },
      ...{ payment_method: form.get("payment_method"), cancellation_reason: cancellationReason },
      last_payment_error: error === null ? null : { code: error },
      latest_charge: status === "succeeded" ? charge : null,
    };
    return { status: 200, body };
  }

  /** A paid session whose amounts and charge are none. */
  #odd() {
    const [paid] = this.#sessions.values();
    return { ...paid?.session, payment_status: "paid", amount_total: "much", payment_intent: "pi_other" };
  }

  #create(form: URLSearchParams) {
    this.forms.push(form);
    const id = `cs_test_${randomBytes(8).toString("hex")}`;
    const metadata = metadataOf(form);
    const session = {
      ...{ id, object: "checkout.session", livemode: false, mode: form.get("mode"), metadata },
      ...{ payment_status: "unpaid", status: "open", url: `https://checkout.stripe.test/${id}` },
      amount_total: Number(form.get("line_items[0][price_data][unit_amount]")),
      currency: form.get("line_items[0][price_data][currency]"),
      client_reference_id: form.get("client_reference_id"),
    };
    this.#sessions.set(id, { session, intent: null, refunded: 0, disputes: [] });
    return session;
  }
}

const UNPAID = { error: null, cancellationReason: null, confirmedAtMs: null, refunded: 0 };

function intentOf({ intent, session, refunded, disputes }: Paid) {
  const charge = {
    ...{ id: `ch_${intent}`, object: "charge", amount: session.amount_total, currency: session.currency },
    ...{ amount_refunded: refunded, disputed: disputes.length > 0 },
  };
  return { id: intent, object: "payment_intent", latest_charge: charge };
}

function metadataOf(form: URLSearchParams): Record<string, string> {
  const entries = [...form].flatMap(([name, value]) => {
    const [, key] = /^metadata\[(\w+)\]$/.exec(name) ?? [];
    return key === undefined ? [] : [[key, value] as const];
  });
  return Object.fromEntries(entries);
}

function refusal(status: number, code: string, type = "invalid_request_error") {
  return { status, body: { error: { type, code, message: code } } };
}
