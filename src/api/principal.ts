import type { Limits } from "./admin/common.ts";
import { inSnakeCase } from "./names.ts";

/** Permissions of a token. `console:read` allows signing in to the console as a member of the organization. */
export const SCOPES = ["chat.completions:write", "models:read", "usage:read", "console:read"] as const;
export type Scope = (typeof SCOPES)[number];
/** Default scopes of a new token: those of `/v1`. */
export const DEFAULT_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read", "usage:read"];
/** Maximum scopes of a short token. Those that its parent token lacks are removed. */
export const SHORT_TOKEN_SCOPES: readonly Scope[] = ["chat.completions:write", "models:read"];

export type OrganizationKind = "standard" | "playground";

/** Id of the playground organization, which every store has. */
export const PLAYGROUND_ID = "org_playground";

/** Limits of a token and of an organization. */
export interface LimitSettings {
  requestsPerMinute: number;
  tokensPerMinute: number;
  concurrentRequests: number;
}

/** Formats limits for the admin API. */
export function toLimits(limits: Partial<LimitSettings> | null): Limits | null {
  return limits && inSnakeCase(limits);
}

/** A budget with limits, of those that cover requests of a caller. */
export interface LimitingBudget {
  id: string;
  name: string;
  models: string[] | null;
  metadata: Record<string, string[]> | null;
  each: string | null;
  /** For each of its values. */
  limits: Partial<LimitSettings> | null;
}

/** Bounds of the tokens that owners and developers of an organization create themselves. */
export interface TokenBoundSettings {
  countMax: number;
  /** Models that these tokens can call; null: all. */
  models: string[] | null;
  /** Highest spending cap in credits, with at most six decimals; null: they need none. */
  capMax: number | null;
  /** Longest time until their expiry; null: they need not expire. */
  daysMax: number | null;
}

/** Values of keys of `metadata` that a caller cannot choose; null: the key stays without a value. */
export type Pins = Readonly<Record<string, string | null>>;
export const PINS_MAX = 16;
/** Keys of `metadata` that can be pinned. `requested_model` is stored by the service. */
export const PIN_KEY = /^(?!requested_model$).{1,64}$/;

/** Id of an organization in another system. */
export const EXTERNAL_ID_PATTERN = /^[!-~]{1,200}$/;
export const CONTACTS_MAX = 10;
export const ALIASES_MAX = 100;
/** Vouchers of a batch. */
export const VOUCHERS_MAX = 1_000;
/** A name that an organization gives to a model. */
export const ALIAS = /^[^\s\p{Cc}*]{1,200}$/u;
/** Ends of the credits that an organization has left when it is closed. */
export const CLOSING_RESTS = ["refunded", "lapsed"] as const;

/** Identity and permissions of a caller. */
export interface Principal {
  tokenId: string;
  /** Identity that outlives a token: the first one of the rotations to it. */
  callerId: string;
  organizationId: string;
  organizationKind: OrganizationKind;
  scopes: ReadonlySet<Scope>;
  /** Allowed models; null for all. */
  models: ReadonlySet<string> | null;
  /** Models that the organization may use, with `*` at the end for all that begin so; null for all. */
  organizationModels: readonly string[] | null;
  /** The organization's own names of models; null: none. */
  aliases: Readonly<Record<string, string>> | null;
  /** The organization's list of prices; null: those of the models. */
  priceList: string | null;
  /** Limits of the token that differ from those of its organization. */
  limits: Partial<LimitSettings> | null;
  /** Limits of the organization that differ from those of the service. */
  organizationLimits: Partial<LimitSettings> | null;
  limitingBudgets: readonly LimitingBudget[];
  keepsConversations: boolean;
  /** True if items of the organization's responses are kept, so that its requests can refer to them. */
  keepsResponses: boolean;
  /** Null: none. */
  pins: Pins | null;
}
