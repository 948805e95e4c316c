import type { Administrator } from "../admin/sessions.ts";
import { identityTokenId } from "../admin/token.ts";
import { permits } from "../api/admin/roles.ts";
import { DEFAULT_SCOPES, type LimitSettings, type Scope } from "../api/principal.ts";
import { DAY_MS, isoTime } from "../api/time.ts";
import { formatCredits } from "../credits/amount.ts";
import { ApiError } from "../errors.ts";
import type { TokenRow } from "../stores/queries/accounts.ts";
import { type AccountCore, allPages, type Core, found, invalidValue, notFound, shortText } from "./core.ts";
import { amountOf, requireOwn } from "./operation.ts";
import type { TokenTerms } from "./token-terms.ts";

/** Bounds of the tokens that a person creates, who holds no less. Without a cap or an expiry, a token needs none. */
export interface OwnBounds extends Pick<TokenTerms, "cap" | "expiresAtMs" | "limits" | "pinned"> {
  countMax: number;
  scopes: readonly Scope[];
  /** Null: every model. */
  models: readonly string[] | null;
}

/** Returns the creator whose tokens alone a caller sees; null for all. */
export function creatorIn(who: Administrator | null): string | null {
  return who === null || permits(who.role, "all-tokens:read") ? null : who.id;
}

/** Returns the ids of the tokens whose spending a caller sees, with the first ones of their rotations; null for all. */
export async function seenTokens({ directory }: Pick<Core, "directory">, who: Administrator | null) {
  if (who === null || creatorIn(who) === null) return null;
  const { id: createdBy, organizationId, person } = who;
  const filter = { organizationId, createdBy, search: null, status: null };
  const ids = (await allPages((page) => directory.tokens({ ...filter, ...page }))).map(({ id }) => id);
  return new Set(person && organizationId ? [...ids, identityTokenId(person, organizationId)] : ids);
}

/** Throws not_found or insufficient_role if a caller may not see, revoke or change a token. Only operators change those of others. */
export function requireToken(
  who: Administrator | null,
  token: Pick<TokenRow, "organizationId" | "createdBy" | "kind">,
  use: "seen" | "revoked" | "changed",
): void {
  if (who === null) return;
  requireOwn(who, token.organizationId);
  if (token.createdBy === who.id && token.kind === "secret") return;
  if (!permits(who.role, "all-tokens:read")) throw notFound();
  if (use !== "changed" || permits(who.role, "tokens:unbounded")) return;
  throw new ApiError("insufficient_role", "You can change only tokens that you created. You can revoke the others.");
}

/** Returns the bounds of the tokens that a caller creates or changes; null for none. Rejects with insufficient_role. */
export async function boundsOf(core: AccountCore, who: Administrator | null): Promise<OwnBounds | null> {
  if (who === null || permits(who.role, "tokens:unbounded")) return null;
  const { person, organizationId, scopes } = who;
  if (person === null || organizationId === null) throw new ApiError("insufficient_role");
  const { tokenBounds } = await found(core.accounts.organization(organizationId));
  if (tokenBounds === null || tokenBounds.countMax === 0) {
    throw new ApiError(
      "insufficient_role",
      "In your organization only operators create tokens. An owner can allow more.",
    );
  }
  const nowMs = core.clock();
  // Their JWTs call models with this token, whose terms an operator can change.
  const own = await core.accounts.token(identityTokenId(person, organizationId));
  if (own !== undefined && (own.revokedAtMs !== null || (own.expiresAtMs ?? nowMs + 1) <= nowMs)) {
    throw new ApiError("insufficient_role", `The token ${own.id}, with which you call models, has ended.`);
  }
  const allowed = (own?.scopes ?? DEFAULT_SCOPES).filter((scope) => scopes?.has(scope) ?? true);
  if (allowed.length === 0) throw new ApiError("insufficient_role", "You have no scope that you can give to a token.");
  const { countMax, models, capMax, daysMax } = tokenBounds;
  const pinned = { ...own?.pinned, ...person.pins };
  return {
    countMax,
    scopes: allowed,
    models: models === null ? (own?.models ?? null) : models.filter((id) => own?.models?.includes(id) ?? true),
    cap: least(capMax === null ? null : amountOf("cap", capMax), own?.budget?.cap ?? null),
    expiresAtMs: least(daysMax === null ? null : nowMs + daysMax * DAY_MS, own?.expiresAtMs ?? null),
    limits: own?.limits ?? null,
    pinned: Object.keys(pinned).length === 0 ? null : pinned,
  };
}

/** Returns the lower of two values; null stands for no bound. */
export function least<Value extends number | bigint>(one: Value | null, other: Value | null): Value | null {
  if (one === null || other === null) return one ?? other;
  return one < other ? one : other;
}

/** Returns the terms of a token, after a change of `old`, within bounds, which absent ones get. Throws invalid_value. */
export function boundTerms(bounds: OwnBounds, stated: Partial<TokenTerms>, old: Partial<TokenTerms> = {}) {
  for (const field of ["limits", "pinned"] as const) {
    if ((stated[field] ?? null) !== null) throw invalidValue(field, "set", "absent: only an operator sets it");
  }
  const terms = { ...old, ...stated };
  const { scopes = null, models = null, cap = null, expiresAtMs = null } = terms;
  const pinned = { ...old.pinned, ...bounds.pinned };
  checkWithin("scopes", scopes, bounds.scopes);
  checkWithin("models", models, bounds.models);
  return {
    scopes: bounds.scopes.filter((scope) => (scopes ?? DEFAULT_SCOPES).includes(scope)),
    models: models ?? (bounds.models && [...bounds.models]),
    cap: atMost("cap", cap, bounds.cap, formatCredits),
    expiresAtMs: atMost("expires_at", expiresAtMs, bounds.expiresAtMs, isoTime),
    limits: leastLimits(old.limits ?? null, bounds.limits),
    pinned: Object.keys(pinned).length === 0 ? null : pinned,
  };
}

function leastLimits(one: OwnBounds["limits"], other: OwnBounds["limits"]): OwnBounds["limits"] {
  const lower = Object.entries({ ...one, ...other }).map(([name, value]) => {
    const limit = name as keyof LimitSettings;
    return [limit, Math.min(value, one?.[limit] ?? value)];
  });
  return lower.length === 0 ? null : Object.fromEntries(lower);
}

function checkWithin(field: string, values: readonly string[] | null, allowed: readonly string[] | null): void {
  const outside = allowed === null ? undefined : values?.find((value) => !allowed.includes(value));
  if (outside === undefined) return;
  const expected = allowed?.length === 0 ? "absent: none is allowed" : `one of: ${allowed?.join(", ")}`;
  throw invalidValue(field, shortText(outside), expected);
}

function atMost<Value extends number | bigint>(
  field: string,
  value: Value | null,
  most: Value | null,
  format: (value: Value) => string,
): Value | null {
  if (value !== null && most !== null && value > most)
    throw invalidValue(field, format(value), `at most ${format(most)}`);
  return value ?? most;
}
