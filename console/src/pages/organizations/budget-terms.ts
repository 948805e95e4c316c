import type { Budget, BudgetCounter, NewBudget } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { limitsLabel } from "../limits-label.ts";
import { type LimitTexts, NO_LIMITS, readLimits, readOptionalCredits } from "../read-form.ts";

export const WINDOWS: readonly (readonly [Budget["window"], string])[] = [
  ["day", "Day"],
  ["week", "Week, from Monday"],
  ["month", "Month"],
  ["lifetime", "Lifetime"],
];
const PER_WINDOW: Record<Budget["window"], string> = {
  day: "a day",
  week: "a week",
  month: "a month",
  lifetime: "in total",
};
const METADATA_PREFIX = "metadata.";

type Selector = Partial<Budget["selector"]>;
type NameOf = (tokenId: string) => string;

/** Describes the requests that a selector covers. `nameOf` returns the name of a token. */
export function coverageLabel({ tokens, models, metadata }: Selector, nameOf: NameOf = (id) => id): string {
  const parts = [
    tokens && `of ${alternatives(tokens.map(nameOf))}`,
    models && `for ${alternatives(models)}`,
    ...Object.entries(metadata ?? {}).map(([key, values]) => `with ${isolated(key)} ${alternatives(values)}`),
  ].filter((part) => typeof part === "string");
  return parts.length === 0 ? "All requests" : `Requests ${parts.join(", ")}`;
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe]/;

/** Keeps a text that callers chose from reversing the text around it. */
function isolated(text: string): string {
  const shown = text.replace(/\p{Bidi_Control}/gu, "\uFFFD");
  return RIGHT_TO_LEFT.test(shown) ? `\u2068${shown}\u2069` : shown;
}

/** Joins texts as alternatives: `a, b or c`. */
function alternatives(chosen: readonly string[]): string {
  const texts = chosen.map(isolated);
  return texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} or ${texts.at(-1)}`;
}

/** Describes the values that have the whole amount and the limits of a budget for themselves. */
export function eachLabel(each: string): string {
  const isMetadata = each.startsWith(METADATA_PREFIX);
  return isMetadata ? `each value of ${isolated(each.slice(METADATA_PREFIX.length))}` : `each ${each}`;
}

/** Describes what a counter has spent and holds, exactly. */
export function usageLabel({ spent, held, limit }: BudgetCounter): string {
  return `${formatAmount(spent)} spent, ${formatAmount(held)} held of ${formatAmount(limit)}`;
}

/** Share from which on a service warns callers. */
export const WARNING_SHARE = 0.8;

/** Returns how full a counter is, with the words for a reader from 80 % on. Parts are percentages of the bar's width. */
export function fillOf({ spent, held, limit, remaining }: BudgetCounter) {
  const share = limit > 0 ? (spent + held) / limit : 1;
  const spentPart = limit > 0 ? Math.min(1, spent / limit) : 1;
  const heldPart = Math.max(0, Math.min(1, share) - spentPart);
  const parts = { spentPercent: spentPart * 100, heldPercent: heldPart * 100 };
  if (remaining <= 0) return { ...parts, warning: { tone: "bad", text: "Used up" } } as const;
  if (share < WARNING_SHARE) return { ...parts, warning: null };
  return { ...parts, warning: { tone: "warn", text: `${Math.floor(share * 100)}% used` } } as const;
}

/** Content of the form for a budget. */
export interface BudgetDraft {
  name: string;
  tokens: readonly string[];
  /** Separated by commas. */
  models: string;
  /** One `key=value` in each line. */
  metadata: string;
  each: "" | "token" | "model" | "metadata";
  key: string;
  window: Budget["window"];
  amount: string;
  limits: LimitTexts;
}

export const EMPTY_BUDGET: BudgetDraft = {
  ...{
    name: "",
    tokens: [],
    models: "",
    metadata: "",
    each: "",
    key: "",
    window: "month",
    amount: "",
    limits: NO_LIMITS,
  },
};

/** The error of a budget that would limit nothing. */
export const NO_TERMS = "Enter credits, limits or both.";

export type BudgetErrors = Partial<Record<keyof BudgetDraft, string>>;

/** Reads the form: the budget to create, or the errors by field. */
export function readBudget(draft: BudgetDraft): { budget: NewBudget } | { errors: BudgetErrors } {
  const errors: BudgetErrors = {};
  const name = draft.name.trim();
  const key = draft.key.trim();
  const amount = readOptionalCredits(draft.amount);
  const limits = readLimits(draft.limits);
  const metadata = readMetadata(draft.metadata);
  if (name === "") errors.name = "Enter a name.";
  if ("error" in amount) errors.amount = amount.error;
  else if (amount.value === null && "value" in limits && limits.value === null) errors.amount = NO_TERMS;
  if ("error" in limits) errors.limits = limits.error;
  if ("error" in metadata) errors.metadata = metadata.error;
  if (draft.each === "metadata" && key === "") errors.key = "Enter a metadata key.";
  if ("error" in amount || "error" in limits || "error" in metadata || Object.keys(errors).length > 0)
    return { errors };
  const models = draft.models.split(",").map((model) => model.trim());
  const selector = {
    tokens: listOrNull(draft.tokens),
    models: listOrNull(models.filter((model) => model !== "")),
    metadata: metadata.value,
  };
  const each = draft.each === "metadata" ? `${METADATA_PREFIX}${key}` : draft.each || null;
  return { budget: { name, selector, each, window: draft.window, amount: amount.value, limits: limits.value } };
}

function listOrNull(values: readonly string[]): string[] | null {
  return values.length === 0 ? null : [...new Set(values)];
}

/** Reads lines of `key=value`; null if there are none. Lines with the same key are alternatives. */
function readMetadata(text: string): { value: Record<string, string[]> | null } | { error: string } {
  const values = new Map<string, string[]>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const [, key = "", value = ""] = /^\s*([^=]*[^=\s])\s*=\s*(.*\S)\s*$/.exec(line) ?? [];
    if (key === "" || value === "") return { error: `Line ${index + 1}: enter key=value.` };
    values.set(key, [...(values.get(key) ?? []), value]);
  }
  return { value: values.size === 0 ? null : Object.fromEntries(values) };
}

/** Says what a budget will limit. */
export function budgetSummary(terms: NewBudget, nameOf: NameOf): string {
  const { selector = {}, each, window = "month", amount, limits } = terms;
  const share = each ? `, for ${eachLabel(each)}` : "";
  const credits = amount ? [`${formatAmount(amount)} credits ${PER_WINDOW[window]}`] : [];
  const words = [...credits, ...(limits ? [limitsLabel(limits)] : [])];
  return `${coverageLabel(selector, nameOf)}: ${words.join(", ")}${share}.`;
}

/** Returns the field of the form that an error of the service is about; null if it is about none. */
export function fieldOfParam(param: string | null): keyof BudgetDraft | null {
  const [, field] = /^(?:selector\.)?(name|tokens|models|metadata|each|window|amount|limits)\b/.exec(param ?? "") ?? [];
  return (field as keyof BudgetDraft | undefined) ?? null;
}
