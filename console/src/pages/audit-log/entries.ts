import type { AuditEntry } from "../../api/types.ts";
import { formatAmount, formatCount } from "../../format/numbers.ts";
import { formatMoment } from "../../format/times.ts";
import { coverageLabel, eachLabel } from "../organizations/budget-terms.ts";
import { SCOPE_LABELS } from "../tokens/draft.ts";
import { spaced } from "./actions.ts";

const ACTORS: Record<AuditEntry["actor"]["kind"], string> = {
  operator: "Operator",
  auditor: "Auditor",
  owner: "Owner",
  developer: "Developer",
  billing: "Billing",
  member: "Member",
  command: "Command line",
  service: "Service",
  anonymous: "Not signed in",
};

/** Fields whose own name would not say what they mean. Others are named by their words. */
const FIELDS: Record<string, string> = {
  cap: "spending cap",
  selector: "covers",
  each: "separately for",
  window_at: "window from",
  expires_at: "expires",
  next_at: "next grant",
  keeps_conversations: "stores prompts and answers",
  keeps_responses: "keeps response items",
  pauses_allowances: "pauses allowances",
  is_disabled: "disabled",
  lapses: "unspent credits expire",
  lapses_at: "expires",
};
/** Fields with an amount of credits. */
const CREDITS = new Set(["amount", "cap", "spent", "limit", "credit_warnings"]);
/** Values that say nothing about a creation. */
const USUAL: Record<string, unknown> = { priority: 0 };
const TIME = /^\d{4}-\d{2}-\d{2}T[\d:.]+Z$/;
const SCOPES = new Map<unknown, string>(SCOPE_LABELS);

const REASONS: Record<string, string> = {
  unknown_token: "unknown token",
  revoked_token: "revoked token",
  expired_token: "expired token",
  insufficient_scope: "missing scope console:read",
  playground_token: "token of the playground organization",
  no_role: "account without a role",
  blocked: "blocked account",
  rejected_response: "invalid answer from the identity provider",
};

export function actorLabel({ kind, name }: AuditEntry["actor"]): string {
  const label = ACTORS[kind] ?? kind;
  return name === null ? label : `${label}: ${name}`;
}

/** Returns the values after a change. The reason of a failed sign-in gets its label. */
export function valuesAfter({ action, after }: Pick<AuditEntry, "action" | "after">): AuditEntry["after"] {
  if (action !== "session.sign_in_failed" || after === null) return after;
  return { ...after, ...(typeof after.reason === "string" && { reason: REASONS[after.reason] ?? after.reason }) };
}

type Values = Record<string, unknown> | null;

/** Lists the fields that a change modified. For a creation, these are all fields that were set. */
export function differences(before: Values, after: Values): { name: string; from: string | null; to: string }[] {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].flatMap((name) => {
    const field = snakeCase(name);
    const from = before === null ? null : inWords(before[name], field);
    const to = after === null ? "" : inWords(after[name], field);
    const isUnset = before === null && (to === NONE || after?.[name] === USUAL[field]);
    const wasUnset = after === null && from === NONE;
    return from === to || isUnset || wasUnset ? [] : [{ name: FIELDS[field] ?? spaced(name), from, to }];
  });
}

const NONE = "none";

function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Formats a value for a reader. The field says if a number is an amount of credits. */
function inWords(value: unknown, field: string): string {
  if (value === undefined || value === null) return NONE;
  if (field === "selector") return coverageLabel(value as Parameters<typeof coverageLabel>[0]);
  if (field === "each") return eachLabel(String(value));
  if (Array.isArray(value)) return value.map((one) => SCOPES.get(one) ?? inWords(one, field)).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (CREDITS.has(field) && Number.isFinite(Number(value))) return `${formatAmount(Number(value))} credits`;
  if (typeof value === "number") return formatCount(value);
  if (typeof value !== "object") return TIME.test(String(value)) ? formatMoment(String(value)) : String(value);
  return Object.entries(value)
    .map(([name, part]) => `${spaced(name)} ${inWords(part, snakeCase(name))}`)
    .join(", ");
}
