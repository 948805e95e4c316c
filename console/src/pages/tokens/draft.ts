import type { NewToken, Token, TokenChange } from "../../api/types.ts";
import { dayOf } from "../../format/times.ts";
import type { ExpiryChoice } from "../form-fields.tsx";
import {
  type LimitTexts,
  limitTexts,
  NO_LIMITS,
  type Read,
  readExpiry,
  readLimits,
  readOptionalCredits,
} from "../read-form.ts";

type Scope = NonNullable<NewToken["scopes"]>[number];

export const SCOPE_LABELS: readonly (readonly [Scope, string])[] = [
  ["chat.completions:write", "Call models"],
  ["models:read", "List models"],
  ["usage:read", "View usage"],
  ["console:read", "Sign in to the console"],
];
const DEFAULT_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read", "usage:read"];

/** Content of the form for a token. */
export interface TokenDraft {
  organizationId: string;
  name: string;
  scopes: ReadonlySet<Scope>;
  /** Null for all models. */
  models: ReadonlySet<string> | null;
  limits: LimitTexts;
  cap: string;
  expiry: ExpiryChoice;
  day: string;
}

export function emptyDraft(organizationId: string): TokenDraft {
  const scopes = new Set(DEFAULT_SCOPES);
  return { organizationId, name: "", scopes, models: null, limits: NO_LIMITS, cap: "", expiry: "never", day: "" };
}

/** Fills the form with the terms of a token. */
export function draftOf({ organization_id, name, scopes, models, limits, cap, expires_at }: Token): TokenDraft {
  return {
    organizationId: organization_id,
    name,
    scopes: new Set(scopes),
    models: models && new Set(models),
    limits: limitTexts(limits),
    cap: cap === null ? "" : String(cap.amount),
    expiry: expires_at === null ? "never" : "date",
    day: expires_at === null ? "" : dayOf(expires_at),
  };
}

type Outcome = { token: NewToken } | { errors: Record<string, string> };

/** Reads the form: the token to create, or the errors by field. */
export function readDraft(draft: TokenDraft, nowMs: number): Outcome {
  const errors: Record<string, string> = {};
  const take = <T>(field: string, read: Read<T>, otherwise: T): T => {
    if ("value" in read) return read.value;
    errors[field] = read.error;
    return otherwise;
  };
  if (draft.organizationId === "") errors.organizationId = "Select an organization.";
  if (draft.name.trim() === "") errors.name = "Enter a name.";
  if (draft.scopes.size === 0) errors.scopes = "Select at least one scope.";
  if (draft.models?.size === 0) errors.models = "Select at least one model, or all models.";
  const limits = readLimits(draft.limits);
  const cap = take("cap", readOptionalCredits(draft.cap), null);
  const token: NewToken = {
    organization_id: draft.organizationId,
    name: draft.name.trim(),
    scopes: [...draft.scopes],
    models: draft.models === null ? null : [...draft.models],
    limits: take(limits.wrong ?? "limits", limits, null),
    ...(cap !== null && { cap }),
    expires_at: take("day", readExpiry(draft.expiry, draft.day, nowMs), null),
  };
  return Object.keys(errors).length > 0 ? { errors } : { token };
}

/**
 * Reads the form: the terms that differ from those with which it opened, or the errors by field. Others are not sent, so that
 * what another operator changes meanwhile is kept.
 */
export function readChange(draft: TokenDraft, before: TokenDraft, nowMs: number) {
  const differs = (...fields: (keyof TokenDraft)[]) => {
    const [now, then] = [draft, before].map((of) => JSON.stringify(fields.map((field) => comparable(of[field]))));
    return now !== then;
  };
  const isNewExpiry = differs("expiry", "day");
  const read = readDraft(isNewExpiry ? draft : { ...draft, expiry: "never" }, nowMs);
  if ("errors" in read) return read;
  const { name, scopes, models, limits, cap = null, expires_at } = read.token;
  const change: TokenChange = {
    ...(differs("name") && { name }),
    ...(differs("scopes") && { scopes }),
    ...(differs("models") && { models }),
    ...(differs("limits") && { limits }),
    ...(differs("cap") && { cap }),
    ...(isNewExpiry && { expires_at }),
  };
  return { change };
}

/** The order in which options were chosen makes no difference. */
function comparable(value: TokenDraft[keyof TokenDraft]): unknown {
  return value instanceof Set ? [...value].sort() : value;
}
