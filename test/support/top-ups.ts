import { Stripe } from "stripe";
import { v7 } from "uuid";
import { expect } from "vitest";
import { SERVICE_ACTOR } from "../../src/admin/audit.ts";
import { isoMonth } from "../../src/api/time.ts";
import type { BookCredits } from "../../src/ledger/commit-queue.ts";
import type { Operation } from "../../src/operations/operation.ts";
import { endTopUp, saveCard, setTopUp, showTopUp } from "../../src/operations/top-ups.ts";
import { Offers, Payments } from "../../src/payments/payments.ts";
import { StripeApi } from "../../src/payments/stripe.ts";
import { TopUps } from "../../src/payments/top-ups.ts";
import type { Store } from "../../src/stores/store.ts";
import { auditOf, grantOf, randomId } from "../stores/fixture.ts";
import { sidesOf } from "../stores/payments.ts";
import type { Opened } from "./opened-stores.ts";
import { StripeStandIn, signatureOf, stripeSettings } from "./stripe.ts";

export const CREDIT = 1_000_000n;
export const [SECOND_MS, HOUR_MS, DAY_MS] = [1_000, 3_600_000, 86_400_000];
/** Ten euros buy 100 credits whenever fewer than 50 are available, three times a month. */
export const TERMS = { threshold: 50, amount: 10, monthly_maximum: 30 };

/** A fault of a call of a node: it fails before, or after it has done its work, as if the node had crashed. */
export type Fault = "before" | "after" | "none";
/** The faults of the next calls, or the one of the calls of a method. */
type Faults = Fault[] | Record<string, Fault>;

export interface NodeOptions {
  store?: Store;
  faults?: Faults;
  api?: StripeApi;
  offers?: Offers;
}

/** Organizations with automatic top-ups, the nodes that charge them, and a stand-in for Stripe. */
export class TopUpWorld {
  readonly opened: Opened;
  readonly stripe: StripeStandIn;
  readonly logged: Record<string, unknown>[] = [];
  nowMs = 0;
  readonly #api: StripeApi;
  readonly #organizations: string[] = [];

  private constructor(opened: Opened, stripe: StripeStandIn) {
    this.opened = opened;
    this.stripe = stripe;
    stripe.clock = () => this.nowMs;
    this.#api = this.apiWithin(60_000);
  }

  static async open(open: () => Promise<Opened>): Promise<TopUpWorld> {
    return new TopUpWorld(await open(), await new StripeStandIn().start());
  }

  async close(): Promise<void> {
    await this.stripe.close();
    await this.opened.close();
  }

  /** Begins so many days ago: months pass in a test, and nothing may be booked in the future. */
  async reset(days: number): Promise<void> {
    // The next sweep is about other organizations.
    for (const id of this.#organizations.splice(0)) await this.call(endTopUp, id);
    this.stripe.reset();
    this.logged.length = 0;
    this.nowMs = Date.now() - days * DAY_MS;
  }

  get settings() {
    return stripeSettings(this.stripe.url);
  }

  apiWithin(requestTimeoutMs: number): StripeApi {
    return new StripeApi({ Client: Stripe, settings: this.settings, proxyVariables: {}, requestTimeoutMs });
  }

  get #time() {
    return { clock: () => this.nowMs, newId: () => v7({ msecs: this.nowMs }) };
  }

  /** A node: every call of its parts meets the next fault. */
  node({ store = this.opened.store, faults = [], api = this.#api, offers = new Offers(this.settings) }: NodeOptions) {
    const book: BookCredits = async (transition) => (await store.books.apply("durable", [transition]))[0] as never;
    const note = (fields: object) => void this.logged.push(fields as Record<string, unknown>);
    const log = { debug() {}, info: note, warn: note, error: note };
    const { accounts, payments: rows, topUps: topUpRows } = store;
    const payments = new Payments({ api, rows, topUps: topUpRows, accounts, book, log, ...this.#time });
    const parts = { api: faulty(api, faults), rows: faulty(topUpRows, faults), payments: faulty(payments, faults) };
    const topUps = new TopUps({ ...parts, offers, log, ...this.#time, everyMs: HOUR_MS });
    return { topUps, payments };
  }

  sweep = (options: NodeOptions = {}): Promise<void> => this.node(options).topUps.sweep();

  deliver(body: string): Promise<void> {
    return this.node({}).payments.receive(Buffer.from(body), signatureOf(body));
  }

  call(operation: Operation, id: string, body: object = {}): Promise<Record<string, unknown>> {
    const { accounts, admin, topUps } = this.opened.store;
    const checkouts = async () => ({ offers: new Offers(this.settings), api: this.#api });
    const core = { accounts, admin, topUps, checkouts, actor: SERVICE_ACTOR, ...this.#time };
    return operation.handle(core as never, { params: { id }, body } as never) as Promise<Record<string, unknown>>;
  }

  shown(id: string): Promise<Record<string, unknown>> {
    return this.call(showTopUp, id);
  }

  book(transition: Parameters<Store["books"]["apply"]>[1][0]) {
    return this.opened.store.books.apply("durable", [transition]);
  }

  grant(id: string, amount: bigint) {
    const audit = { ...auditOf(id, id), action: "credits.grant", after: {} };
    return this.book({ ...grantOf(id, amount), audit });
  }

  /** Saves another card; returns the event of it. */
  async saveCard(id: string, changes: Record<string, unknown> = {}): Promise<string> {
    const { id: sessionId } = await this.call(saveCard, id, { return_url: "https://ai.example.com/credits" });
    const body = this.stripe.save(String(sessionId), changes);
    await this.deliver(body);
    return body;
  }

  /** Creates an organization with a saved card and no credits. */
  async organization(terms: object = {}): Promise<string> {
    const id = randomId("org");
    const made = { id, name: "Acme", kind: "standard", createdAtMs: this.nowMs } as const;
    await this.opened.store.accounts.insertOrganization(made);
    this.#organizations.push(id);
    await this.call(setTopUp, id, { ...TERMS, ...terms });
    await this.saveCard(id);
    return id;
  }

  change(id: string, status: "active" | "paused" | "closed") {
    return this.opened.store.accounts.changeOrganization(id, { status }, () => auditOf(id, id));
  }

  balance(id: string) {
    return this.opened.store.books.balance(id);
  }

  payments(organizationId: string) {
    return this.opened.store.payments.list({ organizationId, before: null, limit: 1_000 });
  }

  state(id: string) {
    return this.opened.store.topUps.read(id, this.nowMs);
  }

  /** Returns the PaymentIntents of an organization, the oldest first; those in a state if one is named. */
  intents(id: string, status?: string) {
    const own = [...this.stripe.intents.values()].filter((one) => one.metadata.tollgate_organization === id);
    return own.filter((one) => status === undefined || one.status === status);
  }

  async events(id: string) {
    const events = await this.opened.store.events.unroutedEvents(100_000);
    return events.filter(({ organizationId, kind }) => organizationId === id && kind.startsWith("top_up."));
  }

  async expectSound(id: string): Promise<void> {
    expect((await this.opened.store.books.verify(id)).violations).toEqual([]);
    const sides = sidesOf(await this.payments(id));
    expect(sides.in).toBe(sides.out);
  }

  /** Each charge has at most one PaymentIntent that is or may be paid, and those of a month are within the maximum. */
  expectCharges(id: string): void {
    const paid = [...this.intents(id, "succeeded"), ...this.intents(id, "processing")];
    const charges = paid.map(({ metadata }) => String(metadata.tollgate_top_up));
    expect(new Set(charges).size).toBe(charges.length);
    const months = Map.groupBy(paid, ({ confirmedAtMs }) => isoMonth(confirmedAtMs ?? 0));
    for (const list of months.values()) expect(list.length).toBeLessThanOrEqual(3);
  }
}

/** Wraps a part so that each of its calls meets the next fault. */
function faulty<Part extends object>(part: Part, faults: Faults): Part {
  return new Proxy(part, {
    get(target, name) {
      const method = Reflect.get(target, name) as (...input: unknown[]) => Promise<unknown>;
      return async (...input: unknown[]) => {
        const fault = (Array.isArray(faults) ? faults.shift() : faults[String(name)]) ?? "none";
        if (fault === "before") throw new Error("crashed");
        const answer = await method.apply(target, input);
        if (fault === "after") throw new Error("crashed");
        return answer;
      };
    },
  });
}
