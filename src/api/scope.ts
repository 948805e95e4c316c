/** Permissions of a token. `console:read` allows its holder to sign in to the console as a member of the organization. */
export const SCOPES = ["chat.completions:write", "models:read", "usage:read", "console:read"] as const;
export type Scope = (typeof SCOPES)[number];
/** Scopes of a token that is created without a list: those of `/v1`. */
export const DEFAULT_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read", "usage:read"];
/** Scopes that a short token has at most, whatever scopes its parent token has. */
export const SHORT_TOKEN_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read"];
