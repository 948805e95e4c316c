import { eventText } from "../admin/event-texts.ts";
import { deliveryOf } from "../admin/receivers.ts";
import { SERVICE_KINDS } from "../api/admin/event-kinds.ts";
import { HOUR_MS } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { closingOf, statementId, statementText } from "../credits/monthly-statement.ts";
import { contactsOf, type EventRow, eventOf, organizationOfContacts } from "../credits/warnings.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { EventDelivery, ReceiverRow } from "../stores/queries/events.ts";
import type { Store } from "../stores/store.ts";

const EVERY_MS = 1_000;
const ROUTED_AT_ONCE = 100;
const RECEIVERS_AT_ONCE = 32;
/** Those of one organization, so that slow ones leave room for the receivers of others. */
const OF_ORGANIZATION_AT_ONCE = 8;
/** Maximum number of contacts that are mailed statements concurrently; low, so that warnings do not wait for them. */
const CONTACTS_AT_ONCE = 8;
/** Longer than any attempt: a node that dies with a delivery leaves it to others after this time. */
const CLAIM_MS = 60_000;
/** Waiting time after each failed attempt. After the last one the delivery has failed. */
export const RETRY_AFTER_MS = [5_000, 300_000, 1_800_000, ...[2, 5, 10, 10].map((hours) => hours * HOUR_MS)] as const;
/** A receiver that has failed for this long is disabled. */
export const DISABLED_AFTER_MS = 120 * HOUR_MS;

/** An event with its text for people. */
export interface EventMessage {
  event: EventRow;
  text: string;
  /** The figures of a statement, which is mailed on its own. */
  statement?: string;
}

export interface AttemptResult {
  isDelivered: boolean;
  /** Such as `HTTP 500`. */
  result: string;
}

/** Sends messages to a receiver. Never rejects, unless the signal aborts it. */
export interface Sender {
  /** Maximum number of messages to claim at once. */
  itemsMax: number;
  isDigest: boolean;
  send(receiver: ReceiverRow, messages: readonly EventMessage[], signal: AbortSignal): Promise<AttemptResult>;
  close(): Promise<void>;
}

export interface DispatcherOptions {
  rows: Store["events"];
  accounts: Pick<Store["accounts"], "organization" | "token">;
  statements: Pick<Store["monthlyStatements"], "ofMonth">;
  /** The settings are read at each use, because a reload changes them. */
  settings: () => { mailsStatements: boolean; publicUrl: string | undefined };
  senderOf(format: ReceiverRow["format"]): Sender;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Logs failures of the store. */
  outage: { failed(fields: object): void; succeeded(): void };
  close(): Promise<void>;
}

/** Delivers events to their receivers, each at least once and with the same id. Several nodes run it: each claims a delivery. */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #stopping = new AbortController();
  /** Receivers that this node sends to, by their ids, with the end of it. */
  readonly #sending = new Map<string, { organizationId: string | null; ended: Promise<void> }>();
  #timer: NodeJS.Timeout | undefined;
  /** Writes the deliveries of new events and begins those that are due. Never rejects. */
  readonly poll = sharedRun(() => this.#guard(() => this.#poll()));

  constructor(options: DispatcherOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.poll(), EVERY_MS).unref();
  }

  /** Ends running attempts; their deliveries are repeated after the next start, or by another node. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    await this.poll.ended();
    await this.idle();
    await this.#options.close();
  }

  /** Resolves when no attempt of this node is running. */
  async idle(): Promise<void> {
    await Promise.all(this.#sending.values().map(({ ended }) => ended));
  }

  async #guard(work: () => Promise<void>): Promise<void> {
    const { outage } = this.#options;
    await work().then(
      () => outage.succeeded(),
      (err: unknown) => {
        if (!this.#stopping.signal.aborted) outage.failed({ err });
      },
    );
  }

  async #poll(): Promise<void> {
    const { rows, clock } = this.#options;
    while ((await this.#route()) === ROUTED_AT_ONCE);
    const contacts = await rows.dueContacts(clock(), CONTACTS_AT_ONCE);
    for (const receiver of [...(await rows.dueReceivers(clock())), ...contacts]) {
      const { id, organizationId } = receiver;
      const own = [...this.#sending.values()].filter((one) => one.organizationId === organizationId);
      const isFull = this.#sending.size >= RECEIVERS_AT_ONCE || own.length >= OF_ORGANIZATION_AT_ONCE;
      if (isFull || this.#sending.has(id)) continue;
      const ended = this.#guard(() => this.#deliver(receiver)).finally(() => this.#sending.delete(id));
      this.#sending.set(id, { organizationId, ended });
    }
  }

  /** Writes the deliveries of the oldest events that have none; returns their number. */
  async #route(): Promise<number> {
    const { rows, clock } = this.#options;
    const events = await rows.unroutedEvents(ROUTED_AT_ONCE);
    if (events.length === 0) return 0;
    const receivers = await rows.receivers(null);
    const deliveries = [];
    for (const event of events) {
      const own = [...receivers.filter((receiver) => isFor(event, receiver)), ...(await this.#contactsFor(event))];
      deliveries.push(...own.map((receiver) => deliveryOf(event, receiver, clock())));
    }
    await rows.routeEvents(
      events.map(({ key }) => key),
      deliveries,
    );
    return events.length;
  }

  /** Returns the contacts who get a statement by mail. */
  async #contactsFor({ kind, organizationId }: EventRow): Promise<ReceiverRow[]> {
    const { accounts, settings } = this.#options;
    if (kind !== "statement.ready" || organizationId === null || !settings().mailsStatements) return [];
    const organization = await accounts.organization(organizationId);
    return organization === undefined || !organization.contacts?.length ? [] : [contactsOf(organization)];
  }

  async #deliver(receiver: ReceiverRow): Promise<void> {
    const { rows, clock, senderOf } = this.#options;
    const { itemsMax, isDigest } = senderOf(receiver.format);
    const due = await rows.dueDeliveries(receiver.id, clock(), itemsMax);
    const claimed = due.length === 0 ? [] : await rows.claimDeliveries(due, clock() + CLAIM_MS);
    const isTogether = isDigest && organizationOfContacts(receiver.id) === undefined;
    const parts = isTogether && claimed.length > 0 ? [claimed] : claimed.map((item) => [item]);
    await Promise.all(parts.map((items) => this.#attempt(receiver, items)));
  }

  async #attempt(receiver: ReceiverRow, items: readonly EventDelivery[]): Promise<void> {
    const { rows, clock, senderOf } = this.#options;
    const { signal } = this.#stopping;
    const messages = await Promise.all(items.map(({ event }) => this.#messageOf(event)));
    const { isDelivered, result } = await senderOf(receiver.format).send(receiver, messages, signal);
    if (signal.aborted && !isDelivered) return;
    const atMs = clock();
    for (const [attempts = 0, own] of Map.groupBy(items, ({ delivery }) => delivery.attempts)) {
      const afterMs = isDelivered ? undefined : RETRY_AFTER_MS[attempts];
      const nextAtMs = afterMs === undefined ? null : atMs + afterMs;
      const ids = own.map(({ delivery }) => delivery.id);
      await rows.recordAttempt(ids, { receiverId: receiver.id, atMs, isDelivered, result, nextAtMs });
    }
    const { failingSinceMs } = receiver;
    if (isDelivered || failingSinceMs === null || atMs - failingSinceMs < DISABLED_AFTER_MS) return;
    await rows.disableReceiver(receiver.id, atMs, disabledEvent(receiver, atMs, result));
  }

  async #messageOf(event: EventRow): Promise<EventMessage> {
    const { organizationId, data } = event;
    const organization =
      organizationId === null ? undefined : await this.#options.accounts.organization(organizationId);
    const name = organization?.name ?? organizationId;
    if (event.kind === "statement.ready") return this.#statementMessage(event, name);
    const text = eventText(event, name);
    if (typeof data.cap_of !== "string") return { event, text };
    return { event: { ...event, data: { ...data, cap_of: await this.#last(data.cap_of) } }, text };
  }

  /** Adds the figures of a statement to its event: its number is known only once it is stored. */
  async #statementMessage({ data, ...event }: EventRow, name: string | null): Promise<EventMessage> {
    const { statements, settings } = this.#options;
    const row = await statements.ofMonth(event.organizationId ?? "", Date.parse(`${data.month}-01`));
    if (row === undefined) throw new Error(`The statement of ${data.month} is missing`);
    const { publicUrl } = settings();
    const id = statementId(row);
    const url = publicUrl === undefined ? null : `${publicUrl.replace(/\/$/, "")}/statements/${encodeURIComponent(id)}`;
    const balances = { opening: creditsFromMicro(row.opening), closing: creditsFromMicro(closingOf(row)) };
    const charged = creditsFromMicro(-row.totals.charge);
    const complete = { ...event, data: { ...data, statement_id: id, ...balances, charged, url } };
    const statement = [statementText(row), ...(url === null ? [] : ["", url])].join("\n");
    return { event: complete, text: eventText(complete, name), statement };
  }

  /** Returns the last token of the rotations of a token: the one that its cap is changed with. */
  async #last(tokenId: string): Promise<string> {
    const token = await this.#options.accounts.token(tokenId);
    return token === undefined || token.successorId === null ? tokenId : this.#last(token.successorId);
  }
}

/**
 * Returns true if a receiver wants an event. Receivers of the service get the events of all organizations, except
 * `statement.ready`, of which each organization has one a month: they get it only if they name the kind.
 */
function isFor({ kind, organizationId }: EventRow, receiver: ReceiverRow): boolean {
  if (receiver.disabledAtMs !== null) return false;
  if (receiver.organizationId !== organizationId) {
    if (receiver.organizationId !== null || SERVICE_KINDS.has(kind)) return false;
    if (kind === "statement.ready" && receiver.kinds === null) return false;
  }
  return receiver.kinds === null || receiver.kinds.includes(kind);
}

function disabledEvent({ id, name, organizationId, failingSinceMs }: ReceiverRow, nowMs: number, result: string) {
  const subject = { organizationId, nowMs, period: [id, failingSinceMs] };
  return eventOf("receiver.disabled", subject, { receiver_id: id, name, last_result: result });
}
