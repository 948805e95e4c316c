import { type AuditTime, auditRow, SERVICE_ACTOR } from "../admin/audit.ts";
import type { PaymentTerms } from "../api/admin/payment.ts";
import type { StripeSettings } from "../config/payments-schema.ts";
import { creditsFromMicro, type MicroCredits, parseCredits } from "../credits/amount.ts";
import type { PaymentTransition } from "../credits/books.ts";
import { creditsFor, minorUnits, moneyNumber } from "../credits/money.ts";
import { openDebt } from "../credits/payments.ts";
import { ApiError, StoreUnavailableError } from "../errors.ts";
import { forEachInChunks } from "../ledger/background-work.ts";
import type { BookCredits } from "../ledger/commit-queue.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import type { StripeApi } from "./stripe.ts";

const COLLECTED_AT_ONCE = 500;
/** Several deliveries of a payment may arrive at once, each of which may change its row while Stripe is asked for another. */
const READS_MAX = 20;

export interface PaymentsOptions extends AuditTime {
  api: Pick<StripeApi, "subjectOf" | "payment" | "savedCard">;
  rows: Store["payments"];
  topUps: Store["topUps"];
  accounts: Pick<Store["accounts"], "organization">;
  book: BookCredits;
  log: Log;
}

/** Books payments as Stripe states them: each delivery of an event is only a reason to ask, so their order does not matter. */
export class Payments {
  readonly #options: PaymentsOptions;

  constructor(options: PaymentsOptions) {
    this.#options = options;
  }

  /** Books the payment that a delivery is about, or stores the card. Rejects if its signature is wrong, or if Stripe has to deliver it again. */
  async receive(body: Buffer, signature: string): Promise<void> {
    const { api, log } = this.#options;
    const { id, setupId, ignored } = await api.subjectOf(body, signature);
    if (ignored !== undefined) log.warn({ reason: ignored }, "an event of Stripe is ignored");
    if (setupId !== undefined) await this.#saveCard(setupId);
    if (id !== undefined) await this.book(id);
  }

  /** Stores the card that a Checkout session has saved, and resumes the automatic top-up. An older card replaces no newer one. */
  async #saveCard(sessionId: string): Promise<void> {
    const { api, topUps, log, clock } = this.#options;
    const saved = await api.savedCard(sessionId);
    if ("ignored" in saved) return log[saved.level]({ sessionId, reason: saved.ignored }, "a card is not saved");
    const { organizationId, ...card } = saved;
    const after = { brand: card.brand, last4: card.last4 };
    const change = { action: "top_up.save_card", organizationId, subjectId: organizationId, after };
    const nowMs = clock();
    await topUps.change(organizationId, nowMs, (state) => {
      if (state === undefined || state.organizationStatus === "closed") return undefined;
      const { row, pending } = state;
      if ((row.card?.savedAtMs ?? 0) >= card.savedAtMs) return undefined;
      const resumed = row.status === "paused" && { status: "on" as const, reason: null, setAtMs: nowMs };
      const nextAtMs = pending === undefined ? nowMs : row.nextAtMs;
      return { row: { card, nextAtMs, ...resumed }, audit: auditRow(SERVICE_ACTOR, change, this.#options) };
    });
  }

  /** Books a payment as Stripe states it, until nothing changes. Returns false if it is not one that can be booked. */
  async book(id: string): Promise<boolean> {
    for (let reads = 0; !(await this.#sync(id)); reads += 1) {
      if (reads === READS_MAX) throw new StoreUnavailableError("The payment was changed by other deliveries.");
    }
    return (await this.#options.rows.find(id)) !== undefined;
  }

  /**
   * Books a payment as Stripe states it. Returns true if Stripe need not be asked again: a booking that changed something may
   * be of an older answer than the one that another delivery found unchanged meanwhile.
   */
  async #sync(id: string): Promise<boolean> {
    const { api, rows, accounts, book, log } = this.#options;
    // Read before Stripe is asked: if another process has booked a later statement meanwhile, this one is refused.
    const row = await rows.find(id);
    const stated = await api.payment(id);
    const refuse = (reason: string, level: "info" | "error" = "error") => {
      log[level]({ paymentId: id, reason }, "a payment is not booked");
      return true;
    };
    if ("ignored" in stated) return refuse(stated.ignored, stated.level);
    const { organizationId } = row ?? stated;
    const organization = await accounts.organization(organizationId);
    if (organization?.kind !== "standard") return refuse(`there is no organization ${organizationId}`);
    const statement = { ...stated, id, organizationId, revision: row?.revision ?? 0 };
    const outcome = await book(transitionOf(statement, this.#options));
    if (outcome.outcome === "granted_before") return refuse(`it was granted before, as ${outcome.grantId}`);
    if (outcome.outcome !== "booked") return false;
    const { withheld } = outcome.payment;
    const level = withheld > 0n || openDebt(outcome.payment) > 0n ? "error" : "info";
    const [debt, toPayBack] = [creditsFromMicro(openDebt(outcome.payment)), creditsFromMicro(withheld)];
    if (outcome.changed) log[level]({ paymentId: id, organizationId, debt, toPayBack }, "a payment is booked");
    return !outcome.changed;
  }
}

/** Takes back credits that holds returned after their payment was refunded. Rejects with the first failure when all were tried. */
export async function collectDebts({ rows, book, ...time }: Pick<PaymentsOptions, "rows" | "book" | keyof AuditTime>) {
  const found = await rows.collectable(COLLECTED_AT_ONCE);
  await forEachInChunks(found, (payment) => book(transitionOf(payment, time)));
}

function transitionOf(payment: Omit<PaymentTransition, "kind" | "audit">, time: AuditTime): PaymentTransition {
  const subject = { organizationId: payment.organizationId, subjectId: payment.id };
  const record = auditRow(SERVICE_ACTOR, { action: "payment.book", ...subject }, time);
  return { kind: "payment", ...payment, audit: { ...record, after: {} } };
}

/** The offers to customers: packages, and amounts that they choose. */
export class Offers {
  readonly #settings: StripeSettings;
  /** Credits by price. */
  readonly #packages: ReadonlyMap<bigint, MicroCredits>;

  constructor(settings: StripeSettings) {
    this.#settings = settings;
    const packages = settings.packages.map(({ amount, credits = "" }) => {
      const price = this.#minor(amount);
      return [price, parseCredits(credits) ?? this.#creditsFor(price)] as const;
    });
    this.#packages = new Map(packages);
  }

  /** Describes the offers for the admin API. */
  describe(): NonNullable<PaymentTerms["offer"]> {
    const { currency, customAmount, creditsPerUnit, automaticTax } = this.#settings;
    const packages = [...this.#packages].map(([price, credits]) => {
      return { amount: moneyNumber(price, currency), credits: creditsFromMicro(credits) };
    });
    const { minimum, maximum } = customAmount ?? {};
    const custom_amount = customAmount ? { minimum: Number(minimum), maximum: Number(maximum) } : null;
    const rates = { credits_per_unit: Number(creditsPerUnit), automatic_top_up: !automaticTax };
    return { currency, packages, custom_amount, ...rates };
  }

  /** Returns the price in the smallest unit, and the credits, of an amount that is offered. Throws invalid_value. */
  find(amount: number): { price: bigint; currency: string; credits: MicroCredits } {
    const { currency, packages, customAmount } = this.#settings;
    const price = this.#minor(String(amount));
    const credits = this.#creditsOf(price);
    if (credits > 0n) return { price, currency, credits };
    const range = customAmount ? [`an amount from ${customAmount.minimum} to ${customAmount.maximum}`] : [];
    const all = [...packages.map((one) => one.amount), ...range].join(", ");
    const message = `Invalid 'amount': expected one of these, in ${currency.toUpperCase()}: ${all}.`;
    throw new ApiError("invalid_value", message, { param: "amount" });
  }

  /** Returns the credits that an automatic top-up of this price buys; undefined if it is not offered. */
  priced(price: bigint, currency: string): MicroCredits | undefined {
    const credits = this.#creditsOf(price);
    // Stripe computes taxes on its own pages only.
    const isOffered = credits > 0n && currency === this.#settings.currency && !this.#settings.automaticTax;
    return isOffered ? credits : undefined;
  }

  #creditsOf(price: bigint): MicroCredits {
    const { customAmount } = this.#settings;
    const isCustom =
      customAmount && price >= this.#minor(customAmount.minimum) && price <= this.#minor(customAmount.maximum);
    return this.#packages.get(price) ?? (isCustom && price > 0n ? this.#creditsFor(price) : 0n);
  }

  #minor(amount: string): bigint {
    return minorUnits(amount, this.#settings.currency) ?? 0n;
  }

  #creditsFor(price: bigint): MicroCredits {
    return creditsFor(price, this.#settings.currency, this.#settings.creditsPerUnit);
  }
}
