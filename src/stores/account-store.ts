import type { LimitSettings, OrganizationKind } from "../contract/principal.ts";
import type { Scope } from "../contract/scope.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { TokenBalanceRow } from "../credits/books.ts";
import type { AuditRow } from "./admin-store.ts";

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
  /** To about a minute. */
  lastUsedAtMs: number | null;
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
  /** Writes name, status, limits and whether conversations are kept. */
  updateOrganization(organization: OrganizationRow, audit: AuditRow): Promise<void>;
  /** With a cap, the token's holds and charges are counted from now on. */
  insertToken(token: TokenRow, cap: MicroCredits | null, audit?: AuditRow): Promise<void>;
  /** The token of this hash, or the one that a short token of this hash stands for. */
  tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined>;
  token(id: string): Promise<TokenWithBudget | undefined>;
  tokens(page: IdPage & { organizationId: string | null }): Promise<TokenWithBudget[]>;
  /** False where there is no such token or it was revoked before; then nothing is written. */
  revokeToken(id: string, atMs: number, audit?: AuditRow): Promise<boolean>;
  /**
   * Writes the successor and ends the predecessor at `oldExpiresAtMs`, in one transaction. Where the predecessor has a
   * cap, both share it.
   */
  replaceToken(oldId: string, oldExpiresAtMs: number, successor: TokenRow, audit?: AuditRow): Promise<void>;
  /** When tokens were last used; what is older than what is known is left out. */
  noteUses(uses: readonly { tokenId: string; atMs: number }[]): Promise<void>;
}
