import { type Limits, sum, sumOfTokens, type TrialActions } from "./actions.ts";
import type { Balance, Books, Event, Hold } from "./books.ts";
import { checkCharge, type SeenHold } from "./charges.ts";
import { PRICES, priceOf, toPico } from "./prices.ts";
import { checkRepetition } from "./repetitions.ts";

/**
 * Checks the trials. It knows the nine invariants of the books, the charging rule and the tables, and shares no code with
 * the service. It remembers what it has read: a booked charge must never change.
 */
export class Checker {
  readonly #limits: Limits;
  readonly #states = new Map<string, string>();
  readonly #events = new Map<string, string>();
  /** Delivered tokens of each open hold, as last known. */
  readonly #delivered = new Map<string, bigint>();
  /** Each hold as it was last read while it was open. */
  readonly #seen = new Map<string, SeenHold>();

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** Returns the faults of the books as a whole. `mayForget`: true if the store crashed since they were last read. */
  checkBooks(books: Books, { mayForgetOpenHolds = false } = {}): string[] {
    this.noteOpenHolds(books);
    const holds = groupBy(books.holds, (hold) => hold.organization_id);
    const events = groupBy(books.events, (event) => event.organization_id);
    return [
      ...books.balances.flatMap((balance) => {
        const id = balance.organization_id;
        return balanceFaults(balance, holds.get(id) ?? [], events.get(id) ?? []);
      }),
      ...budgetFaults(books),
      ...holdFaults(books),
      ...repetitions(books),
      ...this.#changes(books, mayForgetOpenHolds),
      ...this.#forgotten(books, mayForgetOpenHolds),
    ];
  }

  /** Remembers when open holds expire, because the row of an ended request does not contain it. */
  noteOpenHolds({ holds, now }: Books): void {
    for (const { id, state, expires_at } of holds) {
      if (state === "open") this.#seen.set(id, { expiresAt: Number(expires_at), seenAt: now });
    }
  }

  /** Returns the requests whose holds are still open. The charges of a trial can be checked once there are none. */
  openHolds(books: Books, { records }: TrialActions): Hold[] {
    return books.holds.filter((hold) => hold.state === "open" && records.has(requestOf(hold)));
  }

  /** Returns the faults in the charges of a finished trial. */
  checkCharges(books: Books, actions: TrialActions): string[] {
    const holds = groupBy(books.holds, requestOf);
    const events = groupBy(books.events, requestOf);
    return [...actions.records.values()].flatMap((record) => {
      const [hold, ...others] = holds.get(record.id) ?? [];
      if (others.length > 0) return [`${record.id}: ${others.length + 1} holds`];
      const seen = hold && this.#seen.get(hold.id);
      const ofRecord = { record, hold, seen, events: events.get(record.id) ?? [] };
      const faults = [
        ...checkCharge({ ...ofRecord, actions, limits: this.#limits }),
        ...checkRepetition(record, actions.repeated.get(record.id), hold),
      ];
      return faults.map((fault) => `${record.id}: ${fault}`);
    });
  }

  /** Checks invariant 4, and that no booked row is changed or deleted. */
  #changes(books: Books, mayForgetOpenHolds: boolean): string[] {
    const faults: string[] = [];
    const states = new Map(books.holds.map((hold) => [hold.id, hold.state]));
    for (const [id, before] of this.#states) {
      const now = states.get(id);
      if (now === undefined && before === "open" && mayForgetOpenHolds) this.#states.delete(id);
      else if (!FOLLOWS[before]?.includes(now ?? "gone")) faults.push(`hold ${id} went from ${before} to ${now}`);
    }
    for (const [id, state] of states) this.#states.set(id, state);
    const events = new Map(books.events.map((event) => [`${event.hold_id} ${event.sequence}`, textOf(event)]));
    for (const [key, before] of this.#events) {
      if (events.get(key) !== before) faults.push(`event ${key} was ${before}, and is ${events.get(key)}`);
    }
    for (const [key, text] of events) this.#events.set(key, text);
    return faults;
  }

  /** Checks that neither a renewal nor an expiry reduces the delivered tokens of a hold. */
  #forgotten({ holds, events }: Books, mayForgetOpenHolds: boolean): string[] {
    const faults: string[] = [];
    const recovered = new Map(
      events.filter(({ ending }) => ending === "recovered").map((event) => [event.hold_id, event]),
    );
    for (const hold of holds) {
      const known = mayForgetOpenHolds ? 0n : (this.#delivered.get(hold.id) ?? 0n);
      this.#delivered.delete(hold.id);
      const last = hold.state === "open" ? hold : recovered.get(hold.id);
      if (last === undefined) continue;
      const delivered = last.output_tokens + last.reasoning_tokens;
      if (delivered < known)
        faults.push(`hold ${hold.id} had delivered ${known} tokens, and has ${delivered} as ${hold.state}`);
      if (hold.state === "open") this.#delivered.set(hold.id, delivered);
    }
    return faults;
  }
}

/** Possible states of a hold after each state. */
const FOLLOWS: { [state: string]: string[] } = {
  open: ["open", "charged", "released", "expired"],
  charged: ["charged"],
  released: ["released"],
  expired: ["expired", "charged"],
};

/** Invariants 1, 2, 3 and 6. */
function balanceFaults(balance: Balance, holds: Hold[], events: Event[]): string[] {
  const { organization_id: id, granted, available, held, spent, expired } = balance;
  const faults: string[] = [];
  const expect = (holdsTrue: boolean, text: string) => {
    if (!holdsTrue) faults.push(`${id}: ${text}`);
  };
  expect(granted === available + held + spent + expired, `granted ${granted} is not ${textOf(balance)}`);
  expect(
    [granted, available, held, spent, expired].every((amount) => amount >= 0n),
    `below 0: ${textOf(balance)}`,
  );
  const open = holds.filter(({ state }) => state === "open");
  const heldByHolds = sum(open.map(({ amount }) => amount));
  expect(held === heldByHolds, `held ${held}, and its open holds are ${heldByHolds}`);
  const cost = sum(events.map((event) => event.cost));
  expect(spent === cost, `spent ${spent}, and its events cost ${cost}`);
  return faults;
}

/** Each budget of the trials covers every request of its organization: it has held and spent what the organization has. */
function budgetFaults({ balances, counted }: Books): string[] {
  const balanceOf = new Map(balances.map((balance) => [balance.organization_id, balance]));
  return [...groupBy(counted, ({ budget_id }) => budget_id)].flatMap(([budget, counters]) => {
    const balance = balanceOf.get(counters[0]?.organization_id ?? "");
    const [held, spent] = [sum(counters.map((use) => use.held)), sum(counters.map((use) => use.spent))];
    if (balance?.held === held && balance.spent === spent) return [];
    return [`the budget ${budget} has held ${held} and spent ${spent}, not ${balance?.held} and ${balance?.spent}`];
  });
}

/** Invariants 4 and 7, and the arithmetic of each event. */
function holdFaults(books: Books): string[] {
  const events = groupBy(books.events, (event) => event.hold_id);
  const orphans = new Set(events.keys());
  const faults: string[] = [];
  for (const hold of books.holds) {
    orphans.delete(hold.id);
    const own = (events.get(hold.id) ?? []).sort((a, b) => Number(a.sequence - b.sequence));
    const sequences = own.map(({ sequence }) => sequence).join(",");
    const allowed = { open: [""], released: [""], expired: ["0"], charged: ["0", "0,1"] }[hold.state] ?? [];
    if (!allowed.includes(sequences)) faults.push(`hold ${hold.id} is ${hold.state} and has the events ${sequences}`);
    const [first] = own;
    if (first === undefined) continue;
    if (own.length === 2 && first.ending !== "recovered") faults.push(`hold ${hold.id} was charged twice`);
    const [charged, price] = [sum(own.map(({ cost, shortfall }) => cost + shortfall)), priceOf(sumOfTokens(own))];
    if (charged !== price) faults.push(`hold ${hold.id} was charged ${charged} for tokens that cost ${price}`);
    for (const event of own) faults.push(...priceFaults(event));
  }
  return [...faults, ...[...orphans].map((id) => `hold ${id} has events and is not there`)];
}

function priceFaults(event: Event): string[] {
  const booked = [event.input_price, event.cached_input_price, event.output_price].join();
  const stated = [PRICES.input, PRICES.cachedInput, PRICES.output].map(toPico).join();
  return booked === stated ? [] : [`event ${event.hold_id} has the prices ${booked}`];
}

/** Invariant 9, for grants: a reference grants once. */
function repetitions({ grants }: Books): string[] {
  const referred = grants.filter(({ reference }) => reference !== null);
  const references = referred.map((grant) => `${grant.organization_id} ${grant.reference}`);
  const repeated = references.filter((reference, index) => references.indexOf(reference) !== index);
  return repeated.map((reference) => `the reference ${reference} granted twice`);
}

/** Returns the name of a request that the client sent as metadata. */
export function requestOf({ metadata }: { metadata: string | null }): string {
  return metadata === null ? "" : JSON.parse(metadata).request;
}

function groupBy<T>(rows: T[], key: (row: T) => string): Map<string, T[]> {
  return Map.groupBy(rows, key);
}

function textOf(row: object): string {
  return JSON.stringify(row, (_key, value) => (typeof value === "bigint" ? String(value) : value));
}
