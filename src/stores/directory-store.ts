import type { BalanceRow, GrantRow } from "../credits/books.ts";
import type { OrganizationRow, OrganizationStatus, TokenWithBudget } from "./account-store.ts";

/** Organizations, their tokens and grants as they are looked through, the newest first. */
export interface DirectoryRows {
  organizations(page: OrganizationSearch): Promise<ListedOrganization[]>;
  tokens(page: TokenSearch): Promise<ListedToken[]>;
  grants(page: GrantSearch): Promise<GrantRow[]>;
}

export interface ListedOrganization {
  organization: OrganizationRow;
  balance: BalanceRow;
}

export interface ListedToken {
  token: TokenWithBudget;
  organizationName: string;
}

interface NewestFirst {
  /** The last row seen. */
  before: { createdAtMs: number; id: string } | null;
  limit: number;
}

export interface OrganizationSearch extends NewestFirst {
  /** Null: every one. */
  id: string | null;
  /** Part of the name, or a whole id. */
  search: string | null;
  status: OrganizationStatus | null;
}

export interface TokenSearch extends NewestFirst {
  id: string | null;
  organizationId: string | null;
  /** Part of the name, a whole id, or the beginning of the secret. */
  search: string | null;
  status: "active" | "expired" | "revoked" | null;
  /** Which of them have expired. */
  nowMs: number;
}

export interface GrantSearch extends NewestFirst {
  organizationId: string;
  id: string | null;
}
