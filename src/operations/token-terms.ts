import { makeId } from "../admin/token.ts";
import type { NewToken, Token, TokenWithSecret } from "../api/admin/token.ts";
import { DEFAULT_SCOPES, type Pins, SCOPES, type Scope } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { formatCredits, type MicroCredits } from "../credits/amount.ts";
import type { BudgetRow } from "../credits/books.ts";
import { ApiError, OperatorError } from "../errors.ts";
import type { TokenRow, TokenWithBudget } from "../stores/queries/accounts.ts";
import { facts, jsonOf } from "./command.ts";
import { type AccountCore, type Core, found, invalidValue, shortText } from "./core.ts";
import { amountOf, futureTimeOf, limitSettingsOf } from "./operation.ts";

export interface TokenTerms extends Pick<TokenRow, "name" | "models" | "limits" | "expiresAtMs" | "pinned"> {
  /** Null: `DEFAULT_SCOPES`. */
  scopes: string[] | null;
  /** Credits that it may use in total; null: no cap of its own. */
  cap: MicroCredits | null;
}

/** The secret in the answers of operations that make a token. */
export const SECRET = {
  field: "secret",
  hint: ({ id }: Record<string, unknown>) =>
    `The secret of ${id} was shown in the first response and is not stored. If it is lost, revoke ${id} and create another token.`,
};

/** Returns the terms that a body has. Throws invalid_value. */
export function termsOfBody(
  core: Pick<Core, "clock">,
  { limits, cap, expires_at, ...terms }: Partial<Omit<NewToken, "organization_id">>,
) {
  return {
    ...terms,
    ...(limits !== undefined && { limits: limitSettingsOf(limits) }),
    ...(cap !== undefined && { cap: cap === null ? null : amountOf("cap", cap) }),
    ...(expires_at !== undefined && { expiresAtMs: futureTimeOf(core, "expires_at", expires_at) }),
  };
}

/** Returns the terms of a token for the audit log, without its secret or hash. */
export function auditedToken(token: TokenRow): Record<string, unknown> {
  const { name, prefix, scopes, models, limits, expiresAtMs, pinned } = token;
  return { name, prefix, scopes, models, limits, expiresAt: isoTime(expiresAtMs), pinned };
}

/** Returns the values of some terms for the audit log. */
export function auditedTerms(terms: Partial<TokenTerms>, fields: readonly (keyof TokenTerms)[]) {
  const { cap = null, expiresAtMs = null } = terms;
  const entries = fields.map((field): [string, unknown] => {
    if (field === "cap") return [field, cap === null ? null : formatCredits(cap)];
    return field === "expiresAtMs" ? ["expiresAt", isoTime(expiresAtMs)] : [field, terms[field]];
  });
  return Object.fromEntries(entries);
}

/** Makes the budget that is the spending cap of a token, of those before it in rotation and of its successors. */
export function makeCap(
  { random, clock }: AccountCore,
  { organizationId, callerId }: Pick<TokenRow, "organizationId" | "callerId">,
  amount: MicroCredits,
): BudgetRow {
  const selector = { callerIds: [callerId], models: null, metadata: null, each: null, limits: null };
  const terms = { name: "Spending cap", ...selector, window: "lifetime", amount, capOf: callerId } as const;
  return { organizationId, id: makeId("bud", random), ...terms, createdAtMs: clock() };
}

/** Returns the scopes in their order; null: the default ones. Throws invalid_value. */
export function scopesOf(scopes: string[] | null): Scope[] {
  if (scopes === null) return [...DEFAULT_SCOPES];
  for (const scope of scopes) {
    if (!(SCOPES as readonly string[]).includes(scope)) {
      throw invalidValue("scope", shortText(scope), `one of: ${SCOPES.join(", ")}`);
    }
  }
  return SCOPES.filter((scope) => scopes.includes(scope));
}

/** Reads a token. Rejects with not_found. */
export function tokenRow({ accounts }: Pick<Core, "accounts">, id: string): Promise<TokenWithBudget> {
  return found(accounts.token(id), { kind: "token", id });
}

/** Throws token_ended for a token that was revoked or has expired. `change` is what it was asked for: "rotated". */
export function expectActive({ clock }: AccountCore, token: TokenRow, change: string): void {
  const { id, revokedAtMs, expiresAtMs } = token;
  if (revokedAtMs === null && (expiresAtMs === null || expiresAtMs > clock())) return;
  const end = revokedAtMs === null ? `expired at ${isoTime(expiresAtMs)}` : `was revoked at ${isoTime(revokedAtMs)}`;
  throw new ApiError("token_ended", `The token ${id} cannot be ${change}: it ${end}.`);
}

/** Throws invalid_value for the token that stands for an identity, with the reason why it is refused. */
export function requireSecret({ kind }: TokenRow, reason: string): void {
  if (kind === "secret") return;
  throw new ApiError("invalid_value", `The token belongs to an identity of an issuer: ${reason}.`);
}

/** Formats a token as commands do. */
export function tokenJson({ cap, ...token }: Token) {
  const { amount = null, held = null, spent = null } = cap ?? {};
  return { ...jsonOf(token), cap: amount, creditsHeld: held, creditsUsed: spent };
}

/** Formats a new token as commands do. */
export function secretJson({ secret, ...token }: TokenWithSecret) {
  return { ...tokenJson(token), token: secret };
}

/** Describes a token, with its secret if it is new. */
export function tokenText({ secret, ...token }: Token & { secret?: string }): string {
  const pins = Object.entries(token.pinned ?? {}).map(([key, value]) => `${key}=${value}`);
  return facts({
    id: token.id,
    ...(secret !== undefined && { token: secret }),
    name: token.name,
    scopes: token.scopes.join(", "),
    models: token.models?.join(", ") ?? "all",
    expires: token.expires_at ?? "never",
    cap: capText(token),
    pinned: pins.join(", ") || "none",
  });
}

/** Returns the pinned metadata that a flag states. Throws OperatorError for two values of one key. */
export function pinsOf(stated: [key: string, value: string][] | null): Pins | null {
  const pins = stated && Object.fromEntries(stated);
  if (Object.keys(pins ?? {}).length === (stated ?? []).length) return pins;
  throw new OperatorError("--pin has two values of one key.");
}

export function capText({ cap }: Pick<Token, "cap">): string {
  return cap === null ? "-" : `${cap.spent} of ${cap.amount}, ${cap.held} held`;
}
