import { type AuditTime, auditRow, SERVICE_ACTOR } from "../admin/audit.ts";
import { DAY_MS, isoMonth, monthStart } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { moneyNumber, topUpTerms } from "../credits/money.ts";
import { eventOf } from "../credits/warnings.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { TopUpChange, TopUpCharge, TopUpRow, TopUpState } from "../stores/queries/top-ups.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import type { Offers, Payments } from "./payments.ts";
import type { StripeApi } from "./stripe.ts";

/** Organizations that send requests to Stripe at once. */
const AT_ONCE = 10;
/** Pauses between attempts of a charge; between these, a pause is as long as the charge is old. */
const PAUSE_MS = { shortest: 30_000, longest: 3_600_000 };

export interface TopUpsOptions extends AuditTime {
  api: Pick<StripeApi, "createTopUp" | "topUp" | "confirm" | "cancel" | "stop">;
  offers: Pick<Offers, "priced">;
  rows: Store["topUps"];
  payments: Pick<Payments, "book">;
  everyMs: number;
  log: Log;
}

/**
 * Charges saved cards when credits fall below a threshold. Nothing is charged twice: the intent is stored before Stripe is asked, and
 * the PaymentIntent before it is confirmed, which it can be once only. Every node does the same.
 */
export class TopUps {
  readonly #options: TopUpsOptions;
  #timer: NodeJS.Timeout | undefined;
  /** Continues the charges that are pending, and begins those that are due. Never rejects. */
  readonly sweep = sharedRun(() => this.#sweep());

  constructor(options: TopUpsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.sweep(), this.#options.everyMs).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#options.api.stop();
    await this.sweep.ended();
  }

  async #sweep(): Promise<void> {
    const { rows, clock, log } = this.#options;
    const note = (organizationId?: string) => (err: unknown) =>
      log.warn({ err, organizationId }, "an automatic top-up is not finished: it is tried again");
    for (;;) {
      const due = (await rows.due(clock(), PAUSE_MS.longest, AT_ONCE).catch(note())) ?? [];
      const ended = await Promise.all(due.map((id) => this.#topUp(id).then(() => true, note(id))));
      if (due.length < AT_ONCE || !ended.every(Boolean)) return;
    }
  }

  async #topUp(organizationId: string): Promise<void> {
    const { rows, clock } = this.#options;
    const nowMs = clock();
    const change = await rows.change(organizationId, nowMs, (state) => state && this.#next(state, nowMs));
    if (change?.charge !== undefined) await this.#advance(change.charge);
  }

  /** Decides what happens next: claims the pending charge, begins one, or says why there is none. */
  #next(state: TopUpState, nowMs: number): TopUpChange | undefined {
    const { row, pending, used, isReturned } = state;
    // A later time is of a node whose clock was ahead.
    const latestMs = pending === undefined ? monthStart(nowMs, 1) : nowMs + PAUSE_MS.longest;
    if (row.nextAtMs > nowMs && row.nextAtMs <= latestMs) return undefined;
    if (pending !== undefined) {
      const pauseMs = Math.min(PAUSE_MS.longest, Math.max(PAUSE_MS.shortest, nowMs - pending.createdAtMs));
      return { row: { nextAtMs: nowMs + pauseMs }, charge: pending };
    }
    if (!isWanted(state)) return undefined;
    if (isReturned) return this.#pause(row, "refunded", nowMs);
    const { id: organizationId, price, currency, monthlyMaximum } = row;
    const credits = this.#options.offers.priced(price, currency);
    if (credits === undefined) return this.#pause(row, "offer_changed", nowMs);
    if (used + price > monthlyMaximum) {
      const data = { month: isoMonth(nowMs), charged_this_month: moneyNumber(used, currency), ...topUpTerms(row) };
      const event = eventOf(
        "top_up.limit_reached",
        { organizationId, nowMs, period: [data.month, String(monthlyMaximum)] },
        data,
      );
      return { row: { nextAtMs: monthStart(nowMs, 1) }, event };
    }
    const made = { organizationId, id: this.#options.newId(), price, currency, credits, createdAtMs: nowMs };
    const after = { amount: moneyNumber(price, currency), currency, credits: creditsFromMicro(credits) };
    const audit = this.#record("top_up.charge", row, after);
    return {
      row: { nextAtMs: nowMs + PAUSE_MS.shortest },
      charge: { ...made, paymentId: null, state: "pending" },
      audit,
    };
  }

  async #advance(claimed: TopUpCharge): Promise<void> {
    const { api, rows, offers, payments, clock } = this.#options;
    const charge = { ...claimed };
    const { organizationId, id, price, currency, credits } = charge;
    const wanted = async () => {
      const nowMs = clock();
      const state = await rows.read(organizationId, nowMs);
      const isOffered = offers.priced(price, currency) === credits;
      return state && isOffered && isCurrent(charge, state, nowMs) ? state.row.card : null;
    };
    if (charge.paymentId === null) {
      const card = await wanted();
      if (card === null) return this.#end(charge, "failed");
      const made = await api.createTopUp(charge, card).catch((error: unknown) => {
        if (clock() - charge.createdAtMs <= DAY_MS) throw error;
        return { refused: "payment_provider_unavailable" };
      });
      if ("refused" in made) return this.#end(charge, "failed", made.refused);
      const stored = await rows.change(organizationId, clock(), (state) => {
        const isNext = state?.pending?.id === id && state.pending.paymentId === null;
        return isNext ? { row: {}, charge: { ...charge, paymentId: made.id } } : undefined;
      });
      // Another node has stored one, and continues with it.
      if (stored === undefined) return;
      charge.paymentId = made.id;
    }
    const { paymentId } = charge;
    // Every step can be the last one of this node: the next attempt continues after it.
    let stated = await api.topUp(paymentId);
    if (stated.state === "unconfirmed" && (await wanted())?.id === stated.cardId) stated = await api.confirm(paymentId);
    const { reason } = stated;
    // Nobody can confirm it any more.
    if (stated.state === "unconfirmed" || stated.state === "unpaid") stated = await api.cancel(paymentId);
    if (stated.state === "canceled") return this.#end(charge, "failed", stated.reason ?? reason);
    // It may have been paid, so it counts.
    if (stated.state === "missing") return this.#end(charge, "unbooked", stated.reason);
    if (stated.state !== "paid") return;
    if (await payments.book(paymentId)) await this.#end(charge, "paid");
    else await this.#end(charge, "unbooked", "not_booked");
  }

  /** Ends a charge; one that ends for a reason pauses the top-up. */
  async #end(charge: TopUpCharge, state: Exclude<TopUpCharge["state"], "pending">, reason: string | null = null) {
    const { rows, clock } = this.#options;
    const { organizationId, id, paymentId } = charge;
    const nowMs = clock();
    await rows.change(organizationId, nowMs, (found) => {
      // Another node may have stored a PaymentIntent that this one does not know.
      if (found?.pending?.id !== id || found.pending.paymentId !== paymentId) return undefined;
      const isPaused = reason !== null && found.row.status === "on";
      const paused = isPaused ? this.#pause(found.row, reason, nowMs) : { row: {} };
      const audit = this.#record("top_up.charge_end", found.row, { charge_id: id, state, reason });
      return { ...paused, row: { ...paused.row, nextAtMs: nowMs }, charge: { ...found.pending, state }, audit };
    });
  }

  #pause(row: TopUpRow, reason: string, nowMs: number): TopUpChange {
    const data = { reason, ...topUpTerms(row) };
    const event = eventOf("top_up.paused", { organizationId: row.id, nowMs, period: [row.revision] }, data);
    return { row: { status: "paused", reason }, event, audit: this.#record("top_up.pause", row, { reason }) };
  }

  #record(action: string, { id }: TopUpRow, after: Record<string, unknown>) {
    return auditRow(SERVICE_ACTOR, { action, organizationId: id, subjectId: id, after }, this.#options);
  }
}

/** Returns whether a charge may begin or be confirmed, unless one was refunded. */
function isWanted({ row, available, organizationStatus }: TopUpState): boolean {
  return row.status === "on" && row.card !== null && organizationStatus === "active" && available < row.threshold;
}

/** Returns whether a pending charge may be confirmed: it is wanted, on the present terms, and counts for the present month. */
function isCurrent(charge: TopUpCharge, state: TopUpState, nowMs: number): boolean {
  const { row, pending, used, isReturned } = state;
  const isPending = pending?.id === charge.id && pending.paymentId === charge.paymentId;
  const isSame = row.price === charge.price && row.currency === charge.currency;
  // `used` contains this charge.
  const isWithin = charge.createdAtMs >= monthStart(nowMs) && used <= row.monthlyMaximum;
  return isWanted(state) && !isReturned && isPending && isSame && isWithin;
}
