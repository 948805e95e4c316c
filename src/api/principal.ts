/** Permissions of a token. `console:read` allows its holder to sign in to the console as a member of the organization. */
export const SCOPES = ["chat.completions:write", "models:read", "usage:read", "console:read"] as const;
export type Scope = (typeof SCOPES)[number];
/** Scopes of a token that is created without a list: those of `/v1`. */
export const DEFAULT_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read", "usage:read"];
/** Scopes that a short token has at most, whatever scopes its parent token has. */
export const SHORT_TOKEN_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read"];

export type OrganizationKind = "standard" | "playground";

/** The organization of guests; every store has it. */
export const PLAYGROUND_ID = "org_playground";

/** Limits of a token and of an organization. */
export interface LimitSettings {
  requestsPerMinute: number;
  tokensPerMinute: number;
  concurrentRequests: number;
}

/** Who is calling: what a token stands for. */
export interface Principal {
  tokenId: string;
  organizationId: string;
  organizationKind: OrganizationKind;
  scopes: ReadonlySet<Scope>;
  /** Null: every model. */
  models: ReadonlySet<string> | null;
  /** The token's own limits where they differ from its organization's. */
  limits: Partial<LimitSettings> | null;
  /** The organization's where they differ from the service's. */
  organizationLimits: Partial<LimitSettings> | null;
  /** Whether its organization has what is asked and answered kept for a while. */
  keepsConversations: boolean;
}
