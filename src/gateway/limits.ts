import type { LimitSettings, Principal } from "../api/principal.ts";
import { eachValue, isCovered, METADATA_PREFIX } from "../credits/budgets.ts";
import { computedOnce } from "../credits/price.ts";
import { ApiError } from "../errors.ts";
import type { Plan } from "./plan.ts";

const SECONDS_A_DAY = 86_400;
const RETRY_AFTER_SECONDS_MAX = 60;

/** Length of the window of each kind of limit, in seconds. `tokensOfDay` is for the playground. */
export const WINDOW_SECONDS = { requests: 60, tokens: 60, tokensOfDay: SECONDS_A_DAY } as const;

export interface LimitState {
  unit: "requests" | "tokens";
  limit: number;
  remaining: number;
  resetSeconds: number;
  windowSeconds: number;
}

/** A limit, and whom it applies to. */
export interface LimitKey {
  /** Begins with a name of `OWNERS`, such as `token:…`. */
  key: string;
  limit: number;
  /** The budget that sets the limit, and the value that it applies to if it has `each`. */
  budget?: { id: string; name: string; each?: string; value?: string } | undefined;
}

/** An amount that is counted in the window of a limit. */
export interface WindowUse extends LimitKey {
  kind: keyof typeof WINDOW_SECONDS;
  amount: number;
}

/** Everything that an admission takes from the limits, all or nothing. */
export interface WantedLimits {
  /** Requests per minute are among them only where their limit did not apply before the body was read. */
  uses: readonly WindowUse[];
  /** The amount of each use of tokens. */
  tokens: number;
  concurrent: readonly LimitKey[];
}

export interface LimitEntry {
  requestLimit: LimitState;
  tokenLimit: LimitState;
  /** Ends the request's concurrency, and returns the tokens that were not used to their windows. */
  leave(tokensUsed: number): void;
}

/** A request that the limits count. The result is a promise only where the limits are shared between nodes. */
export interface LimitedRequest {
  /** Returns the limit with the fewest requests left. Throws or rejects with rate_limit_exceeded. */
  counted(): LimitState | Promise<LimitState>;
  /** Admits the request. Throws or rejects with rate_limit_exceeded, and takes nothing then. */
  admit(wanted: WantedLimits): LimitEntry | Promise<LimitEntry>;
}

export interface LimitsStatus {
  /** `shared`: the nodes count together in Redis. `local`: this node counts by itself. */
  mode: "shared" | "local";
  nodes: number;
}

/** Counts requests and tokens in windows that begin with their first use, and concurrent requests. */
export interface RateLimiter {
  /** Begins a request, before its body is read. Throws rate_limit_exceeded if a limit is known to be exceeded. */
  begin(keys: readonly LimitKey[]): LimitedRequest;
  /** Counts a request that is not admitted later. Throws or rejects with rate_limit_exceeded. */
  countRequest(keys: readonly LimitKey[]): LimitState | Promise<LimitState>;
  /** Counts an export of this process until the returned function is called. Throws rate_limit_exceeded. */
  enterExport(key: LimitKey): () => void;
  /** Returns the part of a limit that this process may use at present. */
  partOf(limit: number): number;
  status(): LimitsStatus;
  stop(): Promise<void>;
}

/** Returns the use of an amount in the windows of limits. */
export function windowUses(kind: WindowUse["kind"], keys: readonly LimitKey[], amount: number): WindowUse[] {
  return keys.map(({ key, limit, budget }) => ({ kind, key, limit, budget, amount }));
}

type LimitUnit = keyof LimitSettings;
interface LimitSetting {
  limitSettings: LimitSettings;
  playground: { tokensPerDay: number };
}
/** Made once, because V8 looks up each new text that a map is asked for in a table of all texts. */
const ownKeys = computedOnce(({ tokenId, organizationId }: Principal) => ({
  token: `token:${tokenId}`,
  organization: `organization:${organizationId}`,
}));

/** Returns the limits of a token and of its organization, in this order. */
export function limitKeys(
  { limitSettings }: Pick<LimitSetting, "limitSettings">,
  principal: Principal,
  unit: LimitUnit,
): readonly [LimitKey, LimitKey] {
  const { token, organization } = ownKeys(principal);
  const limit = principal.organizationLimits?.[unit] ?? limitSettings[unit];
  return [
    { key: token, limit: principal.limits?.[unit] ?? limit },
    { key: organization, limit },
  ];
}

/** The model that a request calls, and its `metadata`. */
type ModelCall = Pick<Plan, "model" | "labels">;

/** Returns the limits of a call: that of the model, for all callers together, and those of the budgets that cover it. */
export function callLimits(
  { organizationId, callerId, limitingBudgets }: Principal,
  { model: { id: model, limits: ofModel }, labels: metadata }: ModelCall,
  unit: LimitUnit,
): LimitKey[] {
  const limit = ofModel?.[unit];
  const keys: LimitKey[] = limit === undefined ? [] : [{ key: `model:${model}`, limit }];
  const facts = { model, metadata };
  for (const budget of limitingBudgets) {
    const { id, name, each, limits } = budget;
    const limit = limits?.[unit];
    if (limit === undefined || !isCovered(budget, facts)) continue;
    const value = eachValue(budget, { callerId, facts });
    const named = { id, name, ...(each !== null && { each, value }) };
    keys.push({ key: `budget:${organizationId}:${id}:${value}`, limit, budget: named });
  }
  return keys;
}

/** Returns what a request takes from the limits of its caller, and from those of a model and of budgets if it calls a model. */
export function wantedLimits(
  settings: LimitSetting,
  principal: Principal,
  tokens: number,
  call?: ModelCall,
): WantedLimits {
  const ofCall = (unit: LimitUnit) => (call === undefined ? [] : callLimits(principal, call, unit));
  const uses = windowUses("requests", ofCall("requestsPerMinute"), 1);
  uses.push(...windowUses("tokens", limitKeys(settings, principal, "tokensPerMinute"), tokens));
  uses.push(...windowUses("tokens", ofCall("tokensPerMinute"), tokens));
  if (principal.organizationKind === "playground") {
    const day = { key: `organization:${principal.organizationId}`, limit: settings.playground.tokensPerDay };
    uses.push(...windowUses("tokensOfDay", [day], tokens));
  }
  const concurrent = [...limitKeys(settings, principal, "concurrentRequests"), ...ofCall("concurrentRequests")];
  return { uses, tokens, concurrent };
}

/** Returns the state of a window of which `used` is counted, and which ends in `leftMs`. */
export function limitStateOf({ kind, limit }: WindowUse, used: number, leftMs: number): LimitState {
  return {
    unit: kind === "requests" ? "requests" : "tokens",
    limit,
    remaining: Math.max(0, limit - used),
    resetSeconds: Math.max(1, Math.ceil(leftMs / 1000)),
    windowSeconds: WINDOW_SECONDS[kind],
  };
}

/** Returns the limits that the headers of an admitted request show; those of the day come before those of the minute. */
export function shownLimits(
  counted: LimitState,
  states: readonly LimitState[],
): Pick<LimitEntry, "requestLimit" | "tokenLimit"> {
  let requestLimit = counted;
  let tokenLimit: LimitState | undefined;
  for (const state of states) {
    if (state.unit === "requests") requestLimit = tighterOf(requestLimit, state);
    else if (tokenLimit === undefined || state.windowSeconds > tokenLimit.windowSeconds) tokenLimit = state;
    else if (state.windowSeconds === tokenLimit.windowSeconds) tokenLimit = tighterOf(tokenLimit, state);
  }
  if (tokenLimit === undefined) throw new Error("A request was admitted without a limit of tokens");
  return { requestLimit, tokenLimit };
}

/** Returns the state with the fewest requests or tokens left. */
export function tightestOf(states: readonly LimitState[]): LimitState {
  return states.reduce(tighterOf);
}

function tighterOf(a: LimitState, b: LimitState): LimitState {
  return b.remaining < a.remaining ? b : a;
}

/** The owners of limits as messages name them, by the first part of a key. */
const OWNERS: Record<string, string> = {
  token: "this token",
  organization: "this organization",
  model: "this model",
  address: "this address",
  guest: "this address",
  "sign-in": "this address",
  console: "this organization's console",
  createCheckout: "this organization's purchases",
  redeemVoucher: "this organization's vouchers",
  setTopUp: "this organization's automatic top-up",
  saveCard: "this organization's automatic top-up",
};

function ownerOf({ key, budget }: LimitKey): string {
  if (budget !== undefined) {
    const { name, each } = budget;
    return `the budget "${name}"${each === undefined ? "" : ` for this ${each.replace(METADATA_PREFIX, "value of ")}`}`;
  }
  return OWNERS[key.slice(0, key.indexOf(":"))] ?? "this caller";
}

/** Returns the error for an amount that exceeds a limit. */
export function exceeded(use: WindowUse, state: LimitState): ApiError {
  const window = state.windowSeconds === SECONDS_A_DAY ? "day" : "minute";
  const { amount } = use;
  const tooLarge = amount > state.limit;
  const hint = tooLarge
    ? `The request alone counts ${amount}; send a shorter prompt or a smaller max_tokens.`
    : `Try again in ${state.resetSeconds} s.`;
  const message = `Rate limit reached for ${state.unit} per ${window} of ${ownerOf(use)}: limit ${state.limit}. ${hint}`;
  const headers = { ...rateLimitHeaders([state]), ...retryHeaders(state.resetSeconds) };
  if (tooLarge) headers["x-should-retry"] = "false";
  return new ApiError("rate_limit_exceeded", message, { headers, ...sourceOf(use) });
}

/** Returns the error for a concurrent request above a limit. */
export function tooManyAtOnce(limited: LimitKey): ApiError {
  return fullError(`concurrent requests of ${ownerOf(limited)}`, limited);
}

export function fullError(unit: string, { limit, budget }: Omit<LimitKey, "key">): ApiError {
  const message = `Rate limit reached for ${unit}: limit ${limit}. Try again when one has ended.`;
  return new ApiError("rate_limit_exceeded", message, { headers: { "retry-after": "1" }, ...sourceOf({ budget }) });
}

/** Returns the fields of an error that name the budget which sets a limit. */
function sourceOf({ budget }: Pick<LimitKey, "budget">) {
  return budget && { fields: { limit_source: "budget", budget } };
}

const namesFor = (unit: string) => ["limit", "remaining", "reset"].map((what) => `x-ratelimit-${what}-${unit}`);
const HEADER_NAMES = { requests: namesFor("requests"), tokens: namesFor("tokens") };

/** Returns the headers of limits, by OpenAI's names and by those of draft-ietf-httpapi-ratelimit-headers. */
export function rateLimitHeaders(states: readonly LimitState[]): Record<string, string> {
  const headers: Record<string, string> = {};
  let [policies, lefts] = ["", ""];
  for (const { unit, limit, remaining, resetSeconds, windowSeconds } of states) {
    const [limitName = "", remainingName = "", resetName = ""] = HEADER_NAMES[unit];
    headers[limitName] = String(limit);
    headers[remainingName] = String(remaining);
    headers[resetName] = `${resetSeconds}s`;
    const separator = policies === "" ? "" : ", ";
    policies += `${separator}"${unit}";q=${limit};w=${windowSeconds}`;
    lefts += `${separator}"${unit}";r=${remaining};t=${resetSeconds}`;
  }
  headers["ratelimit-policy"] = policies;
  headers.ratelimit = lefts;
  return headers;
}

/** Returns the headers of an error after which a client may try again, unless that takes too long for it to wait. */
export function retryHeaders(afterSeconds: number): Record<string, string> {
  const seconds = Math.min(afterSeconds, RETRY_AFTER_SECONDS_MAX);
  return { "retry-after": String(seconds), ...(afterSeconds > seconds && { "x-should-retry": "false" }) };
}
