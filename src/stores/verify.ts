import { type RawBuilder, sql } from "kysely";
import type { BalanceRow, EventEnd, HoldState } from "../credits/books.ts";
import { balanceFromTable } from "./rows.ts";
import { eventsBefore } from "./statement.ts";
import type { OrganizationVerification, Violation } from "./store.ts";
import type { PortableDatabase } from "./tables.ts";
import { firstIdAt } from "./uuid.ts";
import {
  adjustmentTotals,
  chunkEnd,
  countHolds,
  grantTotals,
  newestEvents,
  oldOpenHolds,
  oldTokenSums,
  openTotal,
  type Range,
  repeatedReferences,
  SWEEP_GRACE_MS,
  strayEvents,
  suspectHolds,
  TOLD_MAX,
  tokenBalances,
  wrongKeys,
} from "./verify-queries.ts";

/** So many holds, with their events, are checked in one snapshot. */
const CHUNK_ROWS = 5_000;
/** What is newer is added up together with the balance, in one snapshot: its rows may still change. */
const NEWEST_MS = 60_000;
/** What was added up in chunks may have changed meanwhile, by a credit say: what does not agree is added up again. */
const ATTEMPTS = 3;

interface SuspectHold {
  id: string;
  state: HoldState;
  amount: bigint;
  charged: bigint;
  shortfall: bigint;
  drawn: bigint;
  first_cost: bigint | null;
  first_ending: EventEnd | null;
  second_cost: bigint | null;
  overdue_ms: bigint;
}
interface TokenSums {
  token_id: string;
  cap: bigint;
  held: bigint;
  spent: bigint;
  newest_held: bigint;
  newest_spent: bigint;
}
interface Totals {
  held: bigint;
  spent: bigint;
  granted: bigint;
  available: bigint;
  credits: bigint;
  revoked: bigint;
  revoked_of_grants: bigint;
  lapsed: bigint;
}

/**
 * Checks the books of one organization, with memory that does not grow with them: holds and events in chunks, each in a
 * short snapshot of its own, then what is newest and the balance in one more. The numbers are those of the invariants in
 * docs/ledger.md.
 */
export async function verifyOrganization(
  database: PortableDatabase,
  organizationId: string,
): Promise<OrganizationVerification> {
  for (let attempt = 1; ; attempt += 1) {
    const check = new Check(database, organizationId);
    const verification = await check.run();
    if (check.totalsAgree || attempt === ATTEMPTS) return verification;
  }
}

class Check {
  readonly #database: PortableDatabase;
  readonly #organizationId: string;
  readonly #violations: Violation[] = [];
  /** Of older holds that were open when they were passed. */
  readonly #open: string[] = [];
  /** By token with a cap, of older holds that have ended. */
  readonly #spent = new Map<string, bigint>();
  #holds = 0n;
  totalsAgree = true;

  constructor(database: PortableDatabase, organizationId: string) {
    this.#database = database;
    this.#organizationId = organizationId;
  }

  async run(): Promise<OrganizationVerification> {
    const [[clock]] = (await this.#read([sql`select ${this.#database.now()} as now`])) as [[{ now: bigint }]];
    const newestFromMs = clock.now - BigInt(NEWEST_MS);
    const newestFrom = firstIdAt(Number(newestFromMs));
    for await (const range of this.#chunks("hold")) await this.#checkHolds(range, newestFrom);
    for await (const range of this.#chunks("idempotency_key")) await this.#checkKeys(range);
    const old = await eventsBefore(this.#database, this.#organizationId, newestFromMs);
    const newest = await this.#checkTotals(newestFrom, newestFromMs, old.costs);
    return {
      organizationId: this.#organizationId,
      holds: Number(this.#holds),
      events: Number(old.events + newest),
      violations: this.#violations,
    };
  }

  /** The last chunk has no end, so that nothing is between two chunks or after them. */
  async *#chunks(table: "hold" | "idempotency_key"): AsyncGenerator<Range> {
    let range: Range = { organizationId: this.#organizationId, after: "", end: null };
    for (;;) {
      const [rows] = (await this.#read([chunkEnd(table, range, CHUNK_ROWS)])) as [{ id: string }[]];
      const end = rows[0]?.id ?? null;
      yield { ...range, end };
      if (end === null) return;
      range = { ...range, after: end };
    }
  }

  async #checkHolds(range: Range, newestFrom: string): Promise<void> {
    const [suspects, strays, [count], open, sums] = (await this.#read([
      suspectHolds(this.#database, range),
      strayEvents(range),
      countHolds(range),
      oldOpenHolds(range, newestFrom),
      oldTokenSums(range, newestFrom),
    ])) as [SuspectHold[], { hold_id: string }[], [{ holds: bigint }], { id: string }[], Partial<TokenSums>[]];
    for (const hold of suspects) checkHold(hold, this.#report);
    for (const { hold_id } of strays)
      this.#report(4, "There is a usage event for a hold that does not exist.", hold_id);
    this.#holds += count.holds;
    this.#open.push(...open.map(({ id }) => id));
    for (const { token_id = "", spent = 0n } of sums) {
      this.#spent.set(token_id, (this.#spent.get(token_id) ?? 0n) + spent);
    }
  }

  async #checkKeys(range: Range): Promise<void> {
    const [keys] = (await this.#read([wrongKeys(range)])) as [{ key: string }[]];
    for (const { key } of keys) this.#report(9, `The idempotency key ${JSON.stringify(key)} does not fit its hold.`);
  }

  /** Gives the number of the newest events. */
  async #checkTotals(newestFrom: string, newestFromMs: bigint, oldCosts: bigint): Promise<bigint> {
    const id = this.#organizationId;
    const [balances, [open], [events], [grants], [adjustments], references, tokens] = (await this.#read([
      sql`select * from balance where organization_id = ${id}`,
      openTotal(id, newestFrom, this.#open),
      newestEvents(id, newestFromMs),
      grantTotals(id),
      adjustmentTotals(id),
      repeatedReferences(id),
      tokenBalances(id, newestFrom, this.#open),
    ])) as [
      Parameters<typeof balanceFromTable>[0][],
      [Pick<Totals, "held">],
      [{ events: bigint; spent: bigint }],
      [Pick<Totals, "granted" | "available">],
      [Omit<Totals, "held" | "spent" | "granted" | "available">],
      { reference: string }[],
      TokenSums[],
    ];
    for (const { reference } of references) this.#report(9, `The reference "${reference}" was granted more than once.`);
    const before = this.#violations.length;
    const [balance] = balances;
    const totals = { ...open, spent: oldCosts + events.spent, ...grants, ...adjustments };
    if (balance === undefined) this.#report(1, "The organization has no balance.");
    else checkBalance(balanceFromTable(balance), totals, this.#report);
    for (const token of tokens) checkToken(token, this.#spent.get(token.token_id) ?? 0n, this.#report);
    this.totalsAgree = this.#violations.length === before;
    return events.events;
  }

  #report = (invariant: number, message: string, holdId: string | null = null): void => {
    const organizationId = this.#organizationId;
    const told = this.#violations.filter((violation) => violation.invariant === invariant).length;
    if (told < TOLD_MAX) this.#violations.push({ invariant, organizationId, holdId, message });
  };

  #read(queries: RawBuilder<unknown>[]): Promise<Record<string, unknown>[][]> {
    return this.#database.snapshot(queries.map((query) => query.compile(this.#database.kysely)));
  }
}

type Report = (invariant: number, message: string, holdId?: string | null) => void;

function checkBalance(balance: BalanceRow, totals: Totals, report: Report): void {
  const { granted, available, held, spent, expired } = balance;
  const sum = available + held + spent + expired;
  if (granted !== sum) report(1, `Granted is ${granted}, but available, held, spent and expired add up to ${sum}.`);
  if (granted !== totals.granted) report(1, `Granted is ${granted}, but the grants add up to ${totals.granted}.`);
  if (available !== totals.available) {
    report(1, `Available is ${available}, but what remains of the grants adds up to ${totals.available}.`);
  }
  if (held !== totals.held) report(2, `Held is ${held}, but the open holds add up to ${totals.held}.`);
  const costs = totals.spent - totals.credits;
  if (spent !== costs) report(3, `Spent is ${spent}, but the usage events less the credits add up to ${costs}.`);
  if (totals.revoked !== totals.revoked_of_grants) {
    report(1, `Revocations add up to ${totals.revoked}, but those of the grants to ${totals.revoked_of_grants}.`);
  }
  if (expired !== totals.lapsed) report(1, `Expired is ${expired}, but the lapses add up to ${totals.lapsed}.`);
  for (const [name, amount] of Object.entries({ granted, available, held, spent, expired })) {
    if (amount < 0n) report(6, `The balance has ${amount} ${name}.`);
  }
}

function checkHold(hold: SuspectHold, report: Report): void {
  const { id, state, amount, charged, shortfall, drawn } = hold;
  const ended = state === "charged" || state === "expired";
  const costs = (hold.first_cost ?? 0n) + (hold.second_cost ?? 0n);
  if (!ended && (hold.first_cost !== null || hold.second_cost !== null)) {
    report(4, `The hold is ${state} and has a usage event.`, id);
  }
  if (!ended && (charged !== 0n || shortfall !== 0n)) {
    report(4, `The hold is ${state}, yet charged ${charged} with a shortfall of ${shortfall}.`, id);
  }
  if (ended && charged !== costs) report(4, `The hold was charged ${charged}, but its events cost ${costs}.`, id);
  if (ended && hold.first_cost === null) report(7, `The hold is ${state} and has no event 0.`, id);
  if (hold.second_cost !== null && (state !== "charged" || hold.first_ending !== "recovered")) {
    report(7, "The hold has an event 1, but was not settled after an expiry.", id);
  }
  const expected = state === "open" ? amount : ended ? charged : 0n;
  if (drawn !== expected) report(4, `The hold draws ${drawn} on grants instead of ${expected}.`, id);
  if (amount < 0n || charged < 0n || shortfall < 0n) report(6, "The hold has an amount below 0.", id);
  if (state === "open" && hold.overdue_ms > SWEEP_GRACE_MS) {
    report(8, `The hold is open ${hold.overdue_ms} ms after its expiry.`, id);
  }
}

/** `oldSpent` is what the token spent by older holds. */
function checkToken(token: TokenSums, oldSpent: bigint, report: Report): void {
  const { token_id, cap, held, spent, newest_held } = token;
  const charged = oldSpent + token.newest_spent;
  if (cap < 0n || held < 0n || spent < 0n) report(6, `The balance of the token ${token_id} is below 0.`);
  if (held !== newest_held) {
    report(2, `The token ${token_id} holds ${held}, but its open holds add up to ${newest_held}.`);
  }
  if (spent !== charged) {
    report(3, `The token ${token_id} has spent ${spent}, but its holds were charged ${charged} less credits.`);
  }
}
