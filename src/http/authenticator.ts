import { LRUCache } from "lru-cache";
import type { Principal } from "../api/principal.ts";
import { ApiError } from "../errors.ts";
import type { AccountRows, TokenWithOrganization } from "../stores/queries/accounts.ts";

export interface AuthenticatorOptions {
  rows: Pick<AccountRows, "tokenByHash">;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Called at each lookup of a token in use: at its first use, and twice a second in steady use. */
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
}

interface CachedToken {
  principal: Principal;
  expiresAtMs: number | null;
  revoked: boolean;
  /** True if its organization is paused. */
  paused: boolean;
  /** Time at which the lookup began; the entry is at least as new. */
  askedAtMs: number;
}

/** A revocation takes effect within 1 s; the rest of that time is for the lookup itself. */
const TIME_TO_LIVE_MS = 900;
const REFRESH_AFTER_MS = 450;
const KNOWN_TOKENS_MAX = 50_000;
const UNKNOWN_TOKENS_MAX = 10_000;

/**
 * Authenticates tokens with a cache. An entry is valid for 900 ms and refreshed in the background in the second half of
 * that time, so that a token in steady use never waits for the store. Keys are SHA-256 hashes: the cache contains no
 * secrets.
 */
export class Authenticator {
  readonly #rows: Pick<AccountRows, "tokenByHash">;
  readonly #clock: () => number;
  readonly #noteUse: AuthenticatorOptions["noteUse"];
  readonly #known = new LRUCache<string, CachedToken>({ max: KNOWN_TOKENS_MAX });
  /** Separate, so that invalid tokens evict no valid ones. */
  readonly #unknownSinceMs = new LRUCache<string, number>({ max: UNKNOWN_TOKENS_MAX });
  readonly #lookups = new Map<string, Promise<CachedToken | undefined>>();

  constructor({ rows, clock, noteUse }: AuthenticatorOptions) {
    this.#rows = rows;
    this.#clock = clock;
    this.#noteUse = noteUse;
  }

  /**
   * Returns the principal of a token, synchronously if it is cached. Takes the token's SHA-256 in hexadecimal digits,
   * undefined for text that cannot be a token. Throws or rejects with ApiError (`invalid_token`, `expired_token`,
   * `organization_paused`), and rejects with StoreUnavailableError if the store is not available.
   */
  authenticate(key: string | undefined): Principal | Promise<Principal> {
    if (key === undefined) throw new ApiError("invalid_token");
    const nowMs = this.#clock();
    const known = this.#known.get(key);
    const ageMs = known === undefined ? Number.POSITIVE_INFINITY : nowMs - known.askedAtMs;
    if (known !== undefined && isWithin(ageMs, TIME_TO_LIVE_MS)) {
      if (ageMs >= REFRESH_AFTER_MS) this.#refresh(key);
      return this.#admit(known);
    }
    const unknownSinceMs = this.#unknownSinceMs.get(key);
    if (unknownSinceMs !== undefined && isWithin(nowMs - unknownSinceMs, TIME_TO_LIVE_MS)) {
      throw new ApiError("invalid_token");
    }
    return this.#lookUp(key).then((found) => this.#admit(found));
  }

  #admit(known: CachedToken | undefined): Principal {
    if (known === undefined || known.revoked) throw new ApiError("invalid_token");
    if (known.expiresAtMs !== null && this.#clock() >= known.expiresAtMs) throw new ApiError("expired_token");
    if (known.paused) throw new ApiError("organization_paused");
    return known.principal;
  }

  #refresh(key: string): void {
    // If the lookup fails, the entry is used until it expires.
    this.#lookUp(key).catch(() => undefined);
  }

  /** Looks a token up; concurrent callers share one lookup. */
  #lookUp(key: string): Promise<CachedToken | undefined> {
    const running = this.#lookups.get(key);
    if (running !== undefined) return running;
    const lookup = this.#ask(key).finally(() => this.#lookups.delete(key));
    this.#lookups.set(key, lookup);
    return lookup;
  }

  async #ask(key: string): Promise<CachedToken | undefined> {
    const askedAtMs = this.#clock();
    const row = await this.#rows.tokenByHash(Buffer.from(key, "hex"));
    if (row === undefined) {
      this.#known.delete(key);
      this.#unknownSinceMs.set(key, askedAtMs);
      return undefined;
    }
    const known = cachedToken(row, askedAtMs);
    if (!known.revoked) this.#noteUse(row.id, askedAtMs, row.lastUsedAtMs === null);
    this.#unknownSinceMs.delete(key);
    this.#known.set(key, known);
    return known;
  }
}

function cachedToken(row: TokenWithOrganization, askedAtMs: number): CachedToken {
  return {
    principal: {
      tokenId: row.id,
      organizationId: row.organizationId,
      organizationKind: row.organizationKind,
      scopes: new Set(row.scopes),
      models: row.models === null ? null : new Set(row.models),
      limits: row.limits,
      organizationLimits: row.organizationLimits,
      keepsConversations: row.organizationKeepsConversations,
    },
    expiresAtMs: row.expiresAtMs,
    revoked: row.revokedAtMs !== null,
    paused: row.organizationStatus !== "active",
    askedAtMs,
  };
}

/** A negative age, after the clock was set back, is not within the lifetime. */
function isWithin(ageMs: number, lifeMs: number): boolean {
  return ageMs >= 0 && ageMs < lifeMs;
}
