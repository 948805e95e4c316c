import { LRUCache } from "lru-cache";
import type { Principal } from "../api/principal.ts";
import { ApiError } from "../errors.ts";
import type { AccountRows, TokenWithOrganization } from "../stores/queries/accounts.ts";

export interface AuthenticatorOptions {
  rows: Pick<AccountRows, "tokenByHash">;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Called at each look-up of a token in use: at its first use, and twice a second in steady use. */
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
}

interface Known {
  principal: Principal;
  expiresAtMs: number | null;
  revoked: boolean;
  /** Its organization takes no new requests. */
  paused: boolean;
  /** When its look-up began: it tells the state of the store at that time or later. */
  askedAtMs: number;
}

/** A revocation is in force within 1 s; the rest of that time is for the look-up itself. */
const GOOD_FOR_MS = 900;
const REFRESHED_FROM_MS = 450;
const KNOWN_TOKENS_MAX = 50_000;
const UNKNOWN_TOKENS_MAX = 10_000;

/**
 * Tells whom a token stands for. What was looked up is good for 900 ms, and looked up again in the background in the
 * second half of that time, so that a token in steady use never waits for the store. The cache is keyed by SHA-256:
 * no secret is kept.
 */
export class Authenticator {
  readonly #rows: Pick<AccountRows, "tokenByHash">;
  readonly #clock: () => number;
  readonly #noteUse: AuthenticatorOptions["noteUse"];
  readonly #known = new LRUCache<string, Known>({ max: KNOWN_TOKENS_MAX });
  /** Kept apart, so that made-up tokens push out no real one. */
  readonly #unknownSinceMs = new LRUCache<string, number>({ max: UNKNOWN_TOKENS_MAX });
  readonly #lookups = new Map<string, Promise<Known | undefined>>();

  constructor({ rows, clock, noteUse }: AuthenticatorOptions) {
    this.#rows = rows;
    this.#clock = clock;
    this.#noteUse = noteUse;
  }

  /**
   * Returns the principal of a token, at once where it is known. Takes the token's SHA-256 in hexadecimal digits, undefined
   * for a text that can be no token. Throws or rejects with ApiError (`invalid_token`, `expired_token`,
   * `organization_paused`), and rejects with StoreUnavailableError where the store cannot tell.
   */
  authenticate(key: string | undefined): Principal | Promise<Principal> {
    if (key === undefined) throw new ApiError("invalid_token");
    const nowMs = this.#clock();
    const known = this.#known.get(key);
    const ageMs = known === undefined ? Number.POSITIVE_INFINITY : nowMs - known.askedAtMs;
    if (known !== undefined && isWithin(ageMs, GOOD_FOR_MS)) {
      if (ageMs >= REFRESHED_FROM_MS) this.#refresh(key);
      return this.#admit(known);
    }
    const unknownSinceMs = this.#unknownSinceMs.get(key);
    if (unknownSinceMs !== undefined && isWithin(nowMs - unknownSinceMs, GOOD_FOR_MS)) {
      throw new ApiError("invalid_token");
    }
    return this.#lookUp(key).then((found) => this.#admit(found));
  }

  #admit(known: Known | undefined): Principal {
    if (known === undefined || known.revoked) throw new ApiError("invalid_token");
    if (known.expiresAtMs !== null && this.#clock() >= known.expiresAtMs) throw new ApiError("expired_token");
    if (known.paused) throw new ApiError("organization_paused");
    return known.principal;
  }

  #refresh(key: string): void {
    // While the store fails, the entry serves until its time is over; then callers are told.
    this.#lookUp(key).catch(() => undefined);
  }

  /** One look-up a token at a time, however many ask. */
  #lookUp(key: string): Promise<Known | undefined> {
    const running = this.#lookups.get(key);
    if (running !== undefined) return running;
    const lookup = this.#ask(key).finally(() => this.#lookups.delete(key));
    this.#lookups.set(key, lookup);
    return lookup;
  }

  async #ask(key: string): Promise<Known | undefined> {
    const askedAtMs = this.#clock();
    const row = await this.#rows.tokenByHash(Buffer.from(key, "hex"));
    if (row === undefined) {
      this.#known.delete(key);
      this.#unknownSinceMs.set(key, askedAtMs);
      return undefined;
    }
    const known = knownFrom(row, askedAtMs);
    if (!known.revoked) this.#noteUse(row.id, askedAtMs, row.lastUsedAtMs === null);
    this.#unknownSinceMs.delete(key);
    this.#known.set(key, known);
    return known;
  }
}

function knownFrom(row: TokenWithOrganization, askedAtMs: number): Known {
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

/** False also for a negative age: a clock that was set back must not keep an entry alive. */
function isWithin(ageMs: number, lifeMs: number): boolean {
  return ageMs >= 0 && ageMs < lifeMs;
}
