import type { IncomingMessage } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { LRUCache } from "lru-cache";
import type { Identities } from "../admin/identities.ts";
import { isJwt } from "../admin/jwt.ts";
import type { Administrator } from "../admin/sessions.ts";
import { tokenHashHex } from "../admin/token.ts";
import { geminiErrors } from "../api/gemini/errors.ts";
import type { Principal, Scope } from "../api/principal.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { type LimitedRequest, type LimitKey, limitKeys } from "../gateway/limits.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { TokenWithOrganization } from "../stores/queries/accounts.ts";
import type { Person } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import { clientAddressKey, onClosed, ownConnection } from "./connection.ts";
import type { RunningWork } from "./overload.ts";

/** Who sends a request: the holder of an access token to `/v1`, or an administrator. */
export type Caller = Readonly<
  | {
      principal: Principal;
      /** Counts a completion with its admission, or with the error that it gets before. */
      limited?: LimitedRequest;
      administrator?: never;
    }
  | { administrator: Administrator; principal?: never; limited?: never }
>;

declare module "fastify" {
  interface FastifyRequest {
    /** From authentication on, also if the request is rejected later. */
    caller: Caller | null;
  }
}

/** Returns by what logs name a caller. Operators have no organization. */
export function callerNamesOf(caller: Caller | null): { organizationId: string | null; tokenId: string | null } {
  if (caller === null) return { organizationId: null, tokenId: null };
  const { principal, administrator: who } = caller;
  if (principal !== undefined) return { organizationId: principal.organizationId, tokenId: principal.tokenId };
  return { organizationId: who.organizationId, tokenId: who.id };
}

/** Returns the hook that authenticates the token, checks its scope and counts the request, before its body is read. */
export function authenticate(
  services: { gateway: Gateway },
  { authenticator, identities }: CallerAccounts,
  scope: Scope,
  work: RunningWork | undefined,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const token = bearerToken(request);
    let principal: Principal;
    try {
      const hash = tokenHashHex(token);
      const isOfIssuer = hash === undefined && isJwt(token);
      principal = await (isOfIssuer ? identities.principalOf(token) : authenticator.authenticate(hash));
    } catch (error) {
      throw withChallenge(error);
    }
    request.caller = { principal };
    ownConnection(request.raw.socket, principal.organizationId);
    if (work !== undefined) onClosed(reply.raw, work.begin(principal.organizationId));
    requireScope(principal, scope);
    const { gateway } = services;
    const limited = gateway.limits.begin(requestKeys(gateway, principal, request.ip));
    if (scope === "chat.completions:write") request.caller = { principal, limited };
    else await limited.counted();
  };
}

/** Returns the principal of an authenticated operation. */
export function principalOf({ caller }: FastifyRequest): Principal {
  if (caller?.principal === undefined) throw new Error("An operation was reached without authentication");
  return caller.principal;
}

/** Returns what counts a completion with its admission. */
export function limitedOf({ caller }: FastifyRequest): LimitedRequest {
  if (caller?.limited === undefined) throw new Error("An operation is not counted with its admission");
  return caller.limited;
}

/** The accounts of those who call `/v1`: with a token of this service, or with a JWT of an issuer. */
export interface CallerAccounts {
  authenticator: Pick<Authenticator, "authenticate">;
  identities: Pick<Identities, "principalOf">;
}

/** All guests of the playground share a token, so their requests are also counted by address. */
function requestKeys(gateway: Gateway, principal: Principal, address: string): readonly LimitKey[] {
  const keys = limitKeys(gateway, principal, "requestsPerMinute");
  if (principal.organizationKind !== "playground") return keys;
  return [{ key: `address:${clientAddressKey(address)}`, limit: gateway.playground.requestsPerMinute }, ...keys];
}

export const GOOGLE_KEY_HEADER = "x-goog-api-key";
const QUERY_KEY = /([?&])key=([^&#]*)(&?)/;

/**
 * Removes a token from the query of a request to Gemini's API, before anything logs its URL. If it is allowed, it becomes the
 * header `x-goog-api-key`; otherwise the query keeps an empty one, which is refused.
 */
export function takeQueryKey(request: IncomingMessage, url: string, isAllowed: boolean): string {
  const [found, before = "", key = "", after] = QUERY_KEY.exec(url) ?? [];
  if (found === undefined) return url;
  if (!isAllowed) return url.replace(QUERY_KEY, `${before}key=${after}`);
  const token = new URLSearchParams(`key=${key}`).get("key") ?? "";
  request.headers[GOOGLE_KEY_HEADER] ??= token;
  request.rawHeaders.push(GOOGLE_KEY_HEADER, token);
  return url.replace(QUERY_KEY, after === "" ? "" : before);
}

/** RFC 6750, section 2.1; the scheme's name is case-insensitive (RFC 9110, section 11.1). */
const BEARER = /^bearer +([A-Za-z0-9\-._~+/]+=*) *$/i;
const API_KEY = /^[A-Za-z0-9\-._~+/]+=*$/;
const CHALLENGE = 'Bearer realm="tollgate"';

/** Headers in which the clients of Anthropic and Google send it. */
const API_KEY_HEADERS = ["x-api-key", GOOGLE_KEY_HEADER];

/**
 * Returns the token of a request, which several headers may have. Throws missing_token, or invalid_value for different tokens,
 * two headers Authorization or a token in the query (RFC 6750, section 2).
 */
export function bearerToken(request: FastifyRequest): string {
  const { raw, headers } = request;
  const header = headers.authorization;
  const query = request.query as Record<string, unknown> | undefined;
  if (query?.key !== undefined && request.routeOptions.config.errors === geminiErrors) {
    const message =
      "A token in the query is not allowed. Send it in the header `x-goog-api-key`, or let the operator set server.keyInQuery.";
    throw new ApiError("invalid_value", message, { param: "key" });
  }
  if (query?.access_token !== undefined || (header !== undefined && headerValues(raw, "authorization").length > 1)) {
    const message = "Send one access token, once: in a single header `Authorization: Bearer <token>`.";
    throw new ApiError("invalid_value", message, { param: "Authorization" });
  }
  const names = API_KEY_HEADERS.filter((name) => headers[name] !== undefined);
  const sent: (string | undefined)[] = names.flatMap((name) => headerValues(raw, name));
  if (header !== undefined) sent.push(BEARER.exec(header)?.[1]);
  if (sent.some((token) => token !== sent[0])) {
    const message = "The request has different access tokens. Send only one of them.";
    throw new ApiError("invalid_value", message, { param: names[0] ?? "" });
  }
  const [token] = sent;
  if (token !== undefined && API_KEY.test(token)) return token;
  throw new ApiError("missing_token", undefined, { headers: { "www-authenticate": CHALLENGE } });
}

/** Returns all values of a header, whose name is in lower case. `headersDistinct` would read all other headers too. */
export function headerValues({ rawHeaders }: IncomingMessage, name: string): string[] {
  const isNamed = (sent = "") => sent.length === name.length && sent.toLowerCase() === name;
  return rawHeaders.filter((_value, index) => index % 2 === 1 && isNamed(rawHeaders[index - 1]));
}

/** Adds the challenge of RFC 6750, section 3, to the error of a rejected token. Returns other errors unchanged. */
export function withChallenge(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.status !== 401) return error;
  const challenge = `${CHALLENGE}, error="invalid_token", error_description="${error.message}"`;
  return new ApiError(error.code, error.message, { headers: { "www-authenticate": challenge } });
}

function requireScope(principal: Principal, scope: Scope): void {
  if (principal.scopes.has(scope)) return;
  const message = `The access token lacks the scope \`${scope}\` that this operation requires.`;
  const challenge = `${CHALLENGE}, error="insufficient_scope", scope="${scope}"`;
  throw new ApiError("insufficient_scope", message, { headers: { "www-authenticate": challenge } });
}

interface AuthenticatorOptions {
  rows: Pick<Store["accounts"], "tokenByHash" | "accountVersion">;
  clock: () => number;
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
  givesAccess(person: Person): boolean;
}

type CachedToken = ReturnType<typeof cachedToken>;

/** A revocation takes effect within 1 s; the rest of that time is for the reads themselves. */
const TIME_TO_LIVE_MS = 900;
const REFRESH_AFTER_MS = 450;
const KNOWN_TOKENS_MAX = 50_000;
const UNKNOWN_TOKENS_MAX = 10_000;

/**
 * Authenticates tokens with a cache by their SHA-256. A token is valid as long as the version of all accounts is the one that it
 * was read at. That version is read twice a second under load, whatever the number of tokens.
 */
export class Authenticator {
  readonly #options: AuthenticatorOptions;
  readonly #known = new LRUCache<string, CachedToken>({ max: KNOWN_TOKENS_MAX });
  /** Separate, so that invalid tokens evict no valid ones. */
  readonly #unknownSinceMs = new LRUCache<string, number>({ max: UNKNOWN_TOKENS_MAX });
  readonly #lookups = new Map<string, Promise<CachedToken | undefined>>();
  /** A version of the accounts, and the time before it was read. */
  #read: { version: number; askedAtMs: number } | undefined;
  readonly #readVersion = sharedRun(() => this.#askVersion());

  constructor(options: AuthenticatorOptions) {
    this.#options = options;
  }

  /**
   * Returns the principal of a token by its SHA-256 in hexadecimal digits, synchronously if it is cached; undefined: text that is
   * no token. Rejects with ApiError, or StoreUnavailableError.
   */
  authenticate(key: string | undefined): Principal | Promise<Principal> {
    if (key === undefined) throw new ApiError("invalid_token");
    const nowMs = this.#options.clock();
    const known = this.#known.get(key);
    if (known !== undefined && known.version === this.#currentVersion(nowMs)) {
      const principal = this.#admit(known);
      this.#options.noteUse(principal.tokenId, nowMs, false);
      return principal;
    }
    const unknownSinceMs = this.#unknownSinceMs.get(key);
    if (unknownSinceMs !== undefined && isWithin(nowMs - unknownSinceMs, TIME_TO_LIVE_MS)) {
      throw new ApiError("invalid_token");
    }
    return this.#lookUp(key).then((found) => this.#admit(found));
  }

  #admit(known: CachedToken | undefined): Principal {
    if (known === undefined || known.revoked) throw new ApiError("invalid_token");
    if (known.blocked) throw new ApiError("account_blocked");
    if (known.person !== null && !this.#options.givesAccess(known.person)) throw new ApiError("invalid_token");
    if (known.expiresAtMs !== null && this.#options.clock() >= known.expiresAtMs) throw new ApiError("expired_token");
    if (known.paused) throw new ApiError("organization_paused");
    return known.principal;
  }

  /** Returns the version of the accounts; undefined if it must be read first. */
  #currentVersion(nowMs: number): number | undefined {
    if (this.#read === undefined) return undefined;
    const ageMs = nowMs - this.#read.askedAtMs;
    if (!isWithin(ageMs, TIME_TO_LIVE_MS)) return undefined;
    // If the read fails, the version is used until its time is over.
    if (ageMs >= REFRESH_AFTER_MS) this.#readVersion().catch(() => undefined);
    return this.#read.version;
  }

  async #askVersion(): Promise<number> {
    const askedAtMs = this.#options.clock();
    const version = await this.#options.rows.accountVersion();
    this.#read = { version, askedAtMs };
    return version;
  }

  #lookUp(key: string): Promise<CachedToken | undefined> {
    const running = this.#lookups.get(key);
    if (running !== undefined) return running;
    const lookup = this.#find(key).finally(() => this.#lookups.delete(key));
    this.#lookups.set(key, lookup);
    return lookup;
  }

  async #find(key: string): Promise<CachedToken | undefined> {
    // Before the token, so that a change between both reads makes the entry outdated, and not the change unnoticed.
    const version = this.#currentVersion(this.#options.clock()) ?? (await this.#readVersion());
    const cached = this.#known.get(key);
    if (cached?.version === version) return cached;
    const askedAtMs = this.#options.clock();
    const row = await this.#options.rows.tokenByHash(Buffer.from(key, "hex"));
    if (row === undefined) {
      this.#known.delete(key);
      this.#unknownSinceMs.set(key, askedAtMs);
      return undefined;
    }
    const known = cachedToken(row, version);
    if (!known.revoked) this.#options.noteUse(row.id, askedAtMs, row.lastUsedAtMs === null);
    this.#unknownSinceMs.delete(key);
    this.#known.set(key, known);
    return known;
  }
}

function cachedToken(row: TokenWithOrganization, version: number) {
  const { organization, isCreatorBlocked } = row;
  const principal: Principal = {
    tokenId: row.id,
    callerId: row.callerId,
    organizationId: row.organizationId,
    organizationKind: organization.kind,
    scopes: new Set(row.scopes),
    models: row.models === null ? null : new Set(row.models),
    organizationModels: organization.models,
    aliases: organization.aliases,
    priceList: organization.priceList,
    limits: row.limits,
    organizationLimits: organization.limits,
    limitingBudgets: row.limitingBudgets,
    keepsConversations: organization.keepsConversations,
    keepsResponses: organization.keepsResponses,
    pins: row.pinned,
  };
  return {
    principal,
    person: row.person ?? null,
    expiresAtMs: row.expiresAtMs,
    // A token with a secret ends with the person who created it.
    revoked: row.revokedAtMs !== null || (isCreatorBlocked && row.kind === "secret"),
    /** True if it stands for a caller of an issuer whom an operator has blocked. */
    blocked: isCreatorBlocked,
    paused: organization.status !== "active",
    /** Version of the accounts that was read before the token; the next one is another number, not a greater one. */
    version,
  };
}

/** A negative age, after the clock was set back, is not within the lifetime. */
function isWithin(ageMs: number, lifeMs: number): boolean {
  return ageMs >= 0 && ageMs < lifeMs;
}
