import type { LimitSettings, OrganizationKind, Scope } from "../api/principal.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { AuditRow } from "../credits/audit.ts";
import type { TokenBalanceRow } from "../credits/books.ts";

export interface OrganizationRow {
  id: string;
  name: string;
  kind: OrganizationKind;
  /** Suspended: its tokens are refused, what runs goes on. */
  status: OrganizationStatus;
  /** What differs from the service's limits. */
  limits: Partial<LimitSettings> | null;
  createdAtMs: number;
  /** Whether what is asked and answered is kept for a while. */
  keepsConversations: boolean;
}
/** Fields of an organization to change; absent fields stay. */
export type OrganizationChange = Partial<Pick<OrganizationRow, "name" | "status" | "limits" | "keepsConversations">>;
export type OrganizationStatus = "active" | "suspended" | "closed";
export type NewOrganizationRow = Omit<OrganizationRow, "status" | "limits" | "keepsConversations"> &
  Partial<Pick<OrganizationRow, "limits">>;

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
  /** Time of the first use, later updated about once a minute. */
  lastUsedAtMs: number | null;
  /** The token that a rotation made of this one. */
  successorId: string | null;
}

/** Of a token with a credit cap, and of all that share it by rotations. */
export type TokenBudget = Pick<TokenBalanceRow, "cap" | "held" | "spent">;
export type TokenWithBudget = TokenRow & { budget: TokenBudget | null };

export interface TokenWithOrganization extends TokenRow {
  organizationKind: OrganizationKind;
  organizationStatus: OrganizationStatus;
  organizationLimits: Partial<LimitSettings> | null;
  organizationKeepsConversations: boolean;
}

export interface IdPage {
  /** Id of the last row seen. */
  after: string | null;
  limit: number;
}

/** Organizations and tokens. What comes with an audit row is written with it in one transaction. */
export interface AccountRows {
  /** Writes the organization and its empty balance. */
  insertOrganization(organization: NewOrganizationRow, audit?: AuditRow): Promise<void>;
  organization(id: string): Promise<OrganizationRow | undefined>;
  organizations(page: IdPage): Promise<OrganizationRow[]>;
  /**
   * Writes the fields of a change that differ from what is stored, and no others, so that changes of different fields
   * at the same time are all kept. `recordOf` makes the audit record from those fields before and after; where none
   * differs, nothing is written. Returns the organization with the change, undefined where there is none.
   */
  changeOrganization(
    id: string,
    change: OrganizationChange,
    recordOf: (before: OrganizationChange, after: OrganizationChange) => AuditRow,
  ): Promise<OrganizationRow | undefined>;
  /** With a cap, the token's holds and charges are counted from now on. */
  insertToken(token: TokenRow, cap: MicroCredits | null, audit?: AuditRow): Promise<void>;
  /** The token of this hash, or the one that a short token of this hash stands for. */
  tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined>;
  token(id: string): Promise<TokenWithBudget | undefined>;
  tokens(page: IdPage & { organizationId: string | null }): Promise<TokenWithBudget[]>;
  /** False where there is no such token or it was revoked before; then nothing is written, the audit row included. */
  revokeToken(id: string, atMs: number, audit?: AuditRow): Promise<boolean>;
  /**
   * Writes the successor and ends the predecessor at `oldExpiresAtMs` at the latest, in one transaction. Where the
   * predecessor has a cap, both share it. False where the predecessor has a successor or was revoked; then nothing is
   * written.
   */
  replaceToken(oldId: string, oldExpiresAtMs: number, successor: TokenRow, audit?: AuditRow): Promise<boolean>;
  /**
   * Writes another successor of a token and revokes the one that it had, in one transaction. False where it has
   * another successor than `unusedId`, or that one was used or rotated; then nothing is written.
   */
  replaceSuccessor(
    replacement: { oldId: string; unusedId: string; oldExpiresAtMs: number; atMs: number; successor: TokenRow },
    audit?: AuditRow,
  ): Promise<boolean>;
  /** When tokens were last used; what is older than what is known is left out. */
  noteUses(uses: readonly { tokenId: string; atMs: number }[]): Promise<void>;
}
