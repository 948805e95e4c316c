import type { LimitSettings, OrganizationKind } from "../contract/principal.ts";
import type { Scope } from "../contract/scope.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { BalanceRow, GrantRow, Outcomes, TokenBalanceRow, Transition, UsageEventRow } from "../credits/books.ts";

export type { LimitSettings, OrganizationKind } from "../contract/principal.ts";

/**
 * The seam to a store. Every verb rejects with StoreUnavailableError when the store cannot be reached or does not
 * answer in time; any other rejection is a defect. A store is a folder beside this file that passes `contract.ts`.
 */
export interface Store {
  readonly kind: "sqlite" | "postgres";
  readonly books: Books;
  readonly accounts: AccountRows;
  /** Resolves when the store answers. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** Holds need not survive a crash of the store; all else must (fsynced) before its promise resolves. */
export type Lane = "holds" | "durable";

/** Credits in motion: transitions, and what is read beside them. */
export interface Books {
  /**
   * Applies a batch in one transaction of four steps: lock the balances in the order of their ids; in a later
   * statement read holds and grants; decide (`credits/decide.ts`); write and commit. Outcomes come in the order of the
   * transitions. A batch names a hold id once. All of it is booked, or none.
   */
  apply<T extends Transition[]>(lane: Lane, transitions: [...T]): Promise<OutcomesOf<T>>;
  /** Open holds past their expiry by the store's clock, oldest first. A look without locks: `expire` tests again. */
  overdueHolds(options: { afterHoldId: string | null; limit: number }): Promise<HoldReference[]>;
  balance(organizationId: string): Promise<BalanceRow | undefined>;
  /** Grants and usage events of an organization, oldest first. */
  statement(organizationId: string, page: StatementPage): Promise<StatementEntry[]>;
  /** Checks one organization in one short snapshot: every invariant that the store alone can show, broken ones told. */
  verify(organizationId: string): Promise<OrganizationVerification>;
}

export type OutcomesOf<T extends Transition[]> = { [I in keyof T]: Outcomes[T[I]["kind"]] };

export interface HoldReference {
  organizationId: string;
  holdId: string;
}

export interface StatementPage {
  /** Position of the last entry seen, from `StatementEntry.position`. */
  after: string | null;
  limit: number;
}
export type StatementEntry = { position: string; atMs: number } & (
  | { kind: "grant"; grant: GrantRow }
  | { kind: "charge"; event: UsageEventRow }
);

export interface Violation {
  /** Number of the invariant, as in docs/ledger.md. */
  invariant: number;
  organizationId: string;
  holdId: string | null;
  message: string;
}
export interface OrganizationVerification {
  organizationId: string;
  holds: number;
  events: number;
  violations: Violation[];
}

export interface OrganizationRow {
  id: string;
  name: string;
  kind: OrganizationKind;
  createdAtMs: number;
}

export interface TokenRow {
  id: string;
  organizationId: string;
  name: string;
  /** SHA-256 of the whole token. */
  hash: Uint8Array;
  /** First characters of the token, to recognize it by. */
  prefix: string;
  scopes: Scope[];
  /** Null: every model. */
  models: string[] | null;
  /** What differs from the service's limits. */
  limits: Partial<LimitSettings> | null;
  createdAtMs: number;
  expiresAtMs: number | null;
  revokedAtMs: number | null;
}

/** Of a token with a credit cap. */
export type TokenBudget = Pick<TokenBalanceRow, "cap" | "held" | "spent">;
export type TokenWithBudget = TokenRow & { budget: TokenBudget | null };
export type TokenWithOrganization = TokenRow & { organizationKind: OrganizationKind };

export interface IdPage {
  /** Id of the last row seen. */
  after: string | null;
  limit: number;
}

/** Organizations and tokens. */
export interface AccountRows {
  /** Writes the organization and its empty balance. */
  insertOrganization(organization: OrganizationRow): Promise<void>;
  organization(id: string): Promise<OrganizationRow | undefined>;
  organizations(page: IdPage): Promise<OrganizationRow[]>;
  /** With a cap, the token's holds and charges are counted from now on. */
  insertToken(token: TokenRow, cap: MicroCredits | null): Promise<void>;
  tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined>;
  token(id: string): Promise<TokenWithBudget | undefined>;
  tokens(page: IdPage & { organizationId: string | null }): Promise<TokenWithBudget[]>;
  /** False where there is no such token or it was revoked before. */
  revokeToken(id: string, atMs: number): Promise<boolean>;
  /**
   * Writes the successor and ends the predecessor at `oldExpiresAtMs`, in one transaction. What is left of the
   * predecessor's cap is the successor's.
   */
  replaceToken(oldId: string, oldExpiresAtMs: number, successor: TokenRow): Promise<void>;
}
