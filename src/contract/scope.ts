/** What a token may do. A token without a stated list has all three. */
export const SCOPES = ["chat.completions:write", "models:read", "usage:read"] as const;
export type Scope = (typeof SCOPES)[number];
