import { LRUCache } from "lru-cache";
import type { Principal } from "../api/principal.ts";
import { ApiError } from "../errors.ts";
import type { AccountRows, TokenWithOrganization } from "../stores/queries/accounts.ts";

type Rows = Pick<AccountRows, "tokenByHash" | "accountVersion">;

export interface AuthenticatorOptions {
  rows: Rows;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Called at each use of a token. */
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
}

interface CachedToken {
  principal: Principal;
  expiresAtMs: number | null;
  revoked: boolean;
  /** True if its organization is paused. */
  paused: boolean;
  /** Version of the accounts that was read before the token; the next one is another number, not a greater one. */
  version: number;
}

/** A version of the accounts, and the time before it was read. */
interface ReadVersion {
  version: number;
  askedAtMs: number;
}

/** A revocation takes effect within 1 s; the rest of that time is for the reads themselves. */
const TIME_TO_LIVE_MS = 900;
const REFRESH_AFTER_MS = 450;
const KNOWN_TOKENS_MAX = 50_000;
const UNKNOWN_TOKENS_MAX = 10_000;

/**
 * Authenticates tokens with a cache. A token is valid as long as the version of all accounts is the one that it was read
 * at. That version is valid for 900 ms and refreshed in the background in the second half of that time, so that under
 * load two small reads a second are enough, whatever the number of tokens. Keys are SHA-256 hashes: the cache contains no
 * secrets.
 */
export class Authenticator {
  readonly #rows: Rows;
  readonly #clock: () => number;
  readonly #noteUse: AuthenticatorOptions["noteUse"];
  readonly #known = new LRUCache<string, CachedToken>({ max: KNOWN_TOKENS_MAX });
  /** Separate, so that invalid tokens evict no valid ones. */
  readonly #unknownSinceMs = new LRUCache<string, number>({ max: UNKNOWN_TOKENS_MAX });
  readonly #lookups = new Map<string, Promise<CachedToken | undefined>>();
  #read: ReadVersion | undefined;
  #reading: Promise<number> | undefined;

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
    if (known !== undefined && known.version === this.#currentVersion(nowMs)) {
      const principal = this.#admit(known);
      this.#noteUse(principal.tokenId, nowMs, false);
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
    if (known.expiresAtMs !== null && this.#clock() >= known.expiresAtMs) throw new ApiError("expired_token");
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

  /** Reads the version of the accounts; concurrent callers share one read. */
  #readVersion(): Promise<number> {
    this.#reading ??= this.#askVersion().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #askVersion(): Promise<number> {
    const askedAtMs = this.#clock();
    const version = await this.#rows.accountVersion();
    this.#read = { version, askedAtMs };
    return version;
  }

  /** Looks a token up; concurrent callers share one lookup. */
  #lookUp(key: string): Promise<CachedToken | undefined> {
    const running = this.#lookups.get(key);
    if (running !== undefined) return running;
    const lookup = this.#find(key).finally(() => this.#lookups.delete(key));
    this.#lookups.set(key, lookup);
    return lookup;
  }

  async #find(key: string): Promise<CachedToken | undefined> {
    // Before the token, so that a change between both reads makes the entry outdated, and not the change unnoticed.
    const version = this.#currentVersion(this.#clock()) ?? (await this.#readVersion());
    const known = this.#known.get(key);
    return known?.version === version ? known : this.#ask(key, version);
  }

  async #ask(key: string, version: number): Promise<CachedToken | undefined> {
    const askedAtMs = this.#clock();
    const row = await this.#rows.tokenByHash(Buffer.from(key, "hex"));
    if (row === undefined) {
      this.#known.delete(key);
      this.#unknownSinceMs.set(key, askedAtMs);
      return undefined;
    }
    const known = cachedToken(row, version);
    if (!known.revoked) this.#noteUse(row.id, askedAtMs, row.lastUsedAtMs === null);
    this.#unknownSinceMs.delete(key);
    this.#known.set(key, known);
    return known;
  }
}

function cachedToken(row: TokenWithOrganization, version: number): CachedToken {
  return {
    principal: {
      tokenId: row.id,
      callerId: row.callerId,
      organizationId: row.organizationId,
      organizationKind: row.organizationKind,
      scopes: new Set(row.scopes),
      models: row.models === null ? null : new Set(row.models),
      limits: row.limits,
      organizationLimits: row.organizationLimits,
      keepsConversations: row.organizationKeepsConversations,
      keepsResponses: row.organizationKeepsResponses,
      pins: row.pinned,
    },
    expiresAtMs: row.expiresAtMs,
    revoked: row.revokedAtMs !== null || row.creatorBlockedAtMs !== null,
    paused: row.organizationStatus !== "active",
    version,
  };
}

/** A negative age, after the clock was set back, is not within the lifetime. */
function isWithin(ageMs: number, lifeMs: number): boolean {
  return ageMs >= 0 && ageMs < lifeMs;
}
