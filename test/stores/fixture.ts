import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect } from "vitest";
import { auditRow, SERVICE_ACTOR } from "../../src/admin/audit.ts";
import type { AuditRow } from "../../src/credits/audit.ts";
import type {
  BudgetRow,
  GrantTransition,
  HoldTransition,
  PaymentTransition,
  ReleaseTransition,
  RenewTransition,
  SettleTransition,
  Transition,
} from "../../src/credits/books.ts";
import type { HoldFacts } from "../../src/credits/facts.ts";
import type { Outcomes } from "../../src/credits/outcomes.ts";
import { FREE, NO_TOKENS, type TokenCounts } from "../../src/credits/price.ts";
import type { Durability } from "../../src/stores/driver.ts";
import type { TokenRow } from "../../src/stores/queries/accounts.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import type { Store } from "../../src/stores/store.ts";

/** The part of a trace for a provider that returned neither an id nor a cost. */
export const NO_PROVIDER_RECORD = { providerResponseId: null, providerCost: null };

export interface ContractStore {
  store: Store;
  /** Opens the same database again, as another process would. */
  openAnother(): Promise<Store>;
  /** Runs one SQL statement beside the store. */
  write(statement: string): Promise<void>;
  /** Runs one SQL statement beside the store, without CHECK constraints. */
  tamper(statement: string): Promise<void>;
  /** Runs a query beside the store; integers are numbers. */
  read(statement: string): Promise<Record<string, unknown>[]>;
  /** Closes everything that was opened. */
  close(): Promise<void>;
}

/** A payment of 10.00 euros as it is stated when it is paid, with an audit record of its own. */
export function paymentOf(
  organizationId: string,
  id: string,
  rest: Partial<PaymentTransition> & Pick<PaymentTransition, "credits">,
): PaymentTransition {
  const time = { clock: Date.now, newId: () => v7() };
  const audit = auditRow(SERVICE_ACTOR, { action: "payment.book", organizationId, subjectId: id }, time);
  const terms = {
    kind: "payment",
    organizationId,
    id,
    currency: "eur",
    amount: 1_000n,
  } as const;
  return {
    ...terms,
    refunded: 0n,
    disputed: 0n,
    revision: 0,
    ...rest,
    audit: { ...audit, after: {} },
  };
}

/** The store under test, with helpers for the cases. */
export class Subject {
  #opened: ContractStore | undefined;

  start(opened: ContractStore): void {
    this.#opened = opened;
  }

  async stop(): Promise<void> {
    await this.#opened?.close();
  }

  get #subject(): ContractStore {
    if (this.#opened === undefined) throw new Error("the store is not open");
    return this.#opened;
  }

  get store(): Store {
    return this.#subject.store;
  }

  get books(): Books {
    return this.store.books;
  }

  openAnother(): Promise<Store> {
    return this.#subject.openAnother();
  }

  write(statement: string): Promise<void> {
    return this.#subject.write(statement);
  }

  read(statement: string): Promise<Record<string, unknown>[]> {
    return this.#subject.read(statement);
  }

  tamper(statement: string): Promise<void> {
    return this.#subject.tamper(statement);
  }

  /** Creates an organization, with a grant if credits are given, and returns its id. */
  async organization(microCredits = 0n): Promise<string> {
    const id = randomId("org");
    await this.store.accounts.insertOrganization({ id, name: "Contract", kind: "standard", createdAtMs: Date.now() });
    if (microCredits > 0n) await this.one(grantOf(id, microCredits));
    return id;
  }

  /** Moves the dates of an organization's grants an hour back, as if an hour had passed. */
  async passHour(organizationId: string): Promise<void> {
    for (const statement of hourPassed(organizationId)) await this.#subject.write(statement);
  }

  /** Creates a token with a cap, or without one (null). */
  async cappedToken(organizationId: string, cap: bigint | null): Promise<string> {
    const token = newToken(organizationId);
    await this.store.accounts.insertToken(token, cap === null ? null : capOf(token, cap));
    return token.id;
  }

  /** Creates a budget of `budgetOf`. */
  async budget(organizationId: string, terms: Partial<BudgetRow> = {}): Promise<BudgetRow> {
    const row = budgetOf(organizationId, terms);
    await this.store.budgets.insertBudget(row, auditOf(organizationId, row.id));
    return row;
  }

  /** Rotates a token, which stays valid, and returns its successor. */
  async successor(organizationId: string, oldId: string): Promise<string> {
    const token = newToken(organizationId, (await this.store.accounts.token(oldId))?.callerId);
    await this.store.accounts.replaceToken({ oldId, oldExpiresAtMs: Date.now() + 3_600_000, successor: token });
    return token.id;
  }

  /** Returns the traces of ended requests, by id. */
  async traces(organizationId: string): Promise<Map<unknown, Record<string, unknown>>> {
    const columns = "is_streamed, first_token_ms, attempts, failure";
    const rows = await this.#subject.read(
      `select id, ${columns} from request where organization_id = '${organizationId}'`,
    );
    return new Map(rows.map(({ id, ...trace }) => [id, trace]));
  }

  /** Applies one transition; a hold with the durability of holds. */
  one<T extends Transition>(
    transition: T,
    durability: Durability = transition.kind === "hold" ? "holds" : "durable",
  ): Promise<Outcomes[T["kind"]]> {
    return one(this.books, transition, durability);
  }

  async held(hold: HoldTransition): Promise<HoldTransition> {
    expect(await this.one(hold)).toMatchObject({ outcome: "held" });
    return hold;
  }

  /** Reads all entries of a statement in pages. */
  async statement(organizationId: string, limit = 100) {
    const entries: Awaited<ReturnType<Books["statement"]>> = [];
    for (;;) {
      const page = await this.books.statement(organizationId, { after: entries.at(-1)?.position ?? null, limit });
      entries.push(...page);
      if (page.length < limit) return entries;
    }
  }

  async events(organizationId: string) {
    const entries = await this.statement(organizationId);
    return entries.flatMap((entry) => (entry.kind === "charge" ? [entry.event] : []));
  }

  async expectSound(organizationId: string): Promise<void> {
    expect((await this.books.verify(organizationId)).violations).toEqual([]);
  }
}

function newToken(organizationId: string, callerId?: string): TokenRow {
  const [id, hash] = [randomId("tok"), new Uint8Array(randomBytes(32))];
  const rights = { prefix: "sk-tg-capp", scopes: [], models: null, limits: null };
  const times = {
    createdAtMs: 0,
    expiresAtMs: null,
    revokedAtMs: null,
    lastUsedAtMs: null,
    successorId: null,
    kind: "secret" as const,
    createdBy: null,
    rotatedBy: null,
    pinned: null,
    callerId: callerId ?? id,
  };
  return { id, organizationId, name: "capped", hash, ...rights, ...times };
}

export async function one<T extends Transition>(
  books: Books,
  transition: T,
  durability: Durability,
): Promise<Outcomes[T["kind"]]> {
  const [outcome] = await books.apply(durability, [transition]);
  return outcome as Outcomes[T["kind"]];
}

export function randomId(prefix: string): string {
  return `${prefix}_${randomBytes(12).toString("hex")}`;
}

/** One micro-credit per input and output token. */
export const PRICES = { ...FREE, input: 1_000_000n, output: 1_000_000n };

export function factsOf(organizationId: string, facts: Partial<HoldFacts> = {}): HoldFacts {
  return {
    holdId: v7(),
    organizationId,
    tokenId: "tok_contract",
    requestId: randomId("req"),
    model: "sandbox/echo",
    upstream: "sandbox/echo",
    prices: PRICES,
    metadata: null,
    idempotencyKey: null,
    ...facts,
  };
}

export const OWNER = "owner_contract";

/** Returns the audit record of a command. */
export function auditOf(organizationId: string, subjectId: string, madeAtMs = Date.now()): AuditRow {
  const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "test", organizationId, subjectId, before: null, after: null };
  return { id: v7({ msecs: madeAtMs }), madeAtMs, ...who, ...change };
}

/** Returns the budget that is the spending cap of a token. */
export function capOf({ organizationId, callerId }: Pick<TokenRow, "organizationId" | "callerId">, amount: bigint) {
  const terms = { callerIds: [callerId], amount, capOf: callerId };
  return budgetOf(organizationId, { name: "Spending cap", window: "lifetime", ...terms });
}

/** Returns a budget of 100 micro-credits a day over all requests of an organization. */
export function budgetOf(organizationId: string, terms: Partial<BudgetRow> = {}): BudgetRow {
  const selector = { callerIds: null, models: null, metadata: null, each: null, limits: null, capOf: null };
  const made = { organizationId, id: randomId("bud"), name: "Contract", createdAtMs: Date.now() };
  return { ...made, ...selector, window: "day", amount: 100n, ...terms };
}

/** Returns a hold of exactly `amount`. With a life below 0 it is overdue at once. */
export function holdOf(organizationId: string, amount: bigint, lifeMs = 120_000): HoldTransition {
  const facts = factsOf(organizationId);
  const terms = { least: amount, most: amount, lifeMs, owner: OWNER };
  return { kind: "hold", facts, callerId: facts.tokenId, ...terms };
}

/** Returns a hold of a token, which is a successor of another one where the caller differs. */
export function tokenHoldOf(
  organizationId: string,
  tokenId: string,
  amount: bigint,
  callerId = tokenId,
): HoldTransition {
  return { ...holdOf(organizationId, amount), facts: factsOf(organizationId, { tokenId }), callerId };
}

/** Returns a settlement that charges a number of tokens at `PRICES`: as many micro-credits. */
export function settleOf({ facts }: { facts: HoldFacts }, output: number): SettleTransition {
  return { kind: "settle", facts, tokens: tokensOf(output), basis: "reported", end: "complete" };
}

export function releaseOf({ facts }: { facts: HoldFacts }): ReleaseTransition {
  return { kind: "release", facts };
}

/** Returns a renewal for a minute, with a number of output tokens at the checkpoint. */
export function renewOf({ facts, most }: HoldTransition, output = 0, lifeMs = 60_000): RenewTransition {
  return { kind: "renew", facts, amount: most, tokens: tokensOf(output), lifeMs, owner: OWNER };
}

export function tokensOf(output: number): TokenCounts {
  return { ...NO_TOKENS, output };
}

export function referenceOf({ facts }: { facts: HoldFacts }): { organizationId: string; holdId: string } {
  return { organizationId: facts.organizationId, holdId: facts.holdId };
}

export function grantOf(
  organizationId: string,
  amount: bigint,
  grant: Partial<Omit<GrantTransition, "kind" | "organizationId" | "amount">> = {},
): GrantTransition {
  return {
    kind: "grant",
    organizationId,
    grantId: randomId("grant"),
    amount,
    effectiveAtMs: null,
    expiresAtMs: null,
    priority: 100,
    reference: null,
    ...grant,
  };
}

export const HOUR_MS = 3_600_000;

/** SQL that moves the dates of an organization's grants and adjustments an hour back, so that no test waits for the clock. */
export function hourPassed(organizationId: string): string[] {
  const ofOrganization = `where organization_id = '${organizationId}'`;
  return [
    `update credit_grant set effective_at = effective_at - ${HOUR_MS}, expires_at = expires_at - ${HOUR_MS} ${ofOrganization}`,
    `update credit_grant set created_at = created_at - ${HOUR_MS} ${ofOrganization} and source = 'credit'`,
    `update adjustment set made_at = made_at - ${HOUR_MS}, expires_at = expires_at - ${HOUR_MS} ${ofOrganization}
      and kind in ('credit', 'lapse')`,
    `update balance set next_change_at = next_change_at - ${HOUR_MS} ${ofOrganization}`,
  ];
}

export function wait(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
