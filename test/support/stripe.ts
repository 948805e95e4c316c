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
  /** The forms that created sessions. */
  readonly forms: URLSearchParams[] = [];
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

  refund(intent: string, amount: number): void {
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
    const object = type.startsWith("checkout.") ? this.#paidBy(intent).session : { object: "charge", id: "ch_1" };
    const id = `evt_${randomBytes(8).toString("hex")}`;
    const data = { object: { ...object, payment_intent: intent } };
    return JSON.stringify({ id, object: "event", type, livemode: false, created: 1, data, ...rest });
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
    if (this.mode === "closing") return void request.socket.destroy();
    const send = (status: number, body: unknown) => {
      response.writeHead(status, { "content-type": "application/json", "request-id": "req_1" });
      response.end(JSON.stringify(body));
    };
    if (request.headers.authorization !== `Bearer ${SECRET_KEY}`) return send(401, { error: { message: "no" } });
    if (this.mode === "failing") return send(500, { error: { type: "api_error", message: "down" } });
    if (this.mode === "odd") return send(200, { object: "list", data: [{ ...this.#odd(), id: 7 }] });
    if (url.pathname === "/v1/checkout/sessions" && request.method === "POST") return send(200, this.#create(form));
    const intent = url.searchParams.get("payment_intent") ?? "";
    const list = (data: unknown[]) => send(200, { object: "list", has_more: false, url: url.pathname, data });
    const paid = [...this.#sessions.values()].find((one) => one.intent === intent);
    if (url.pathname === "/v1/disputes") return list(paid?.disputes ?? []);
    if (url.pathname !== "/v1/checkout/sessions") return send(404, { error: { message: "unknown" } });
    list(paid === undefined ? [] : [{ ...paid.session, payment_intent: intentOf(paid) }]);
  }

  /** A paid session whose amounts and charge are none. */
  #odd() {
    const [paid] = this.#sessions.values();
    return { ...paid?.session, payment_status: "paid", amount_total: "much", payment_intent: "pi_other" };
  }

  #create(form: URLSearchParams) {
    this.forms.push(form);
    const id = `cs_test_${randomBytes(8).toString("hex")}`;
    const metadata = Object.fromEntries(
      [...form].flatMap(([name, value]) => {
        const [, key] = /^metadata\[(\w+)\]$/.exec(name) ?? [];
        return key === undefined ? [] : [[key, value]];
      }),
    );
    const session = {
      ...{ id, object: "checkout.session", livemode: false, mode: "payment", metadata },
      ...{ payment_status: "unpaid", status: "open", url: `https://checkout.stripe.test/${id}` },
      amount_total: Number(form.get("line_items[0][price_data][unit_amount]")),
      currency: form.get("line_items[0][price_data][currency]"),
      client_reference_id: form.get("client_reference_id"),
    };
    this.#sessions.set(id, { session, intent: null, refunded: 0, disputes: [] });
    return session;
  }
}

function intentOf({ intent, session, refunded, disputes }: Paid) {
  const charge = {
    ...{ id: `ch_${intent}`, object: "charge", amount: session.amount_total, currency: session.currency },
    ...{ amount_refunded: refunded, disputed: disputes.length > 0 },
  };
  return { id: intent, object: "payment_intent", latest_charge: charge };
}
