/** What a token may do. A token without a stated list has all three. */
export const SCOPES = ["chat.completions:write", "models:read", "usage:read"] as const;
export type Scope = (typeof SCOPES)[number];
/** What a short token may do at most, whatever the token may that it stands for. */
export const SHORT_TOKEN_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read"];
