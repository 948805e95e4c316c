import { LRUCache } from "lru-cache";
import type { AccountRows, AdminRows, TokenRow } from "../stores/store.ts";
import { makeToken, type RandomBytes } from "./token.ts";

export interface ShortTokensOptions {
  rows: AdminRows;
  accounts: AccountRows;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
}

/** A token for a browser. */
export interface ShortToken {
  token: string;
  organizationId: string;
  expiresAtMs: number;
}

const LIFE_MS = 15 * 60_000;
/** What has less left of its life is not handed out again. */
const GOOD_FROM_MS = 7 * 60_000;
const KEPT_MAX = 10_000;

/**
 * Tokens for the playground, which live for minutes: each stands for a token of an organization, with its models, limits,
 * cap and revocation. Whoever asks again soon is given the same one, so that there are few.
 */
export class ShortTokens {
  readonly #options: ShortTokensOptions;
  readonly #issued = new LRUCache<string, ShortToken>({ max: KEPT_MAX });

  constructor(options: ShortTokensOptions) {
    this.#options = options;
  }

  /** A short token that stands for this one. */
  async standFor({ id, organizationId, expiresAtMs }: TokenRow): Promise<ShortToken> {
    const { rows, clock, random } = this.#options;
    const nowMs = clock();
    const issued = this.#issued.get(id);
    if (issued !== undefined && issued.expiresAtMs - nowMs >= GOOD_FROM_MS && issued.expiresAtMs <= nowMs + LIFE_MS) {
      return issued;
    }
    const { token, hash } = makeToken(random);
    const endsAtMs = Math.min(nowMs + LIFE_MS, expiresAtMs ?? Number.POSITIVE_INFINITY);
    await rows.insertShortToken({ hash, tokenId: id, expiresAtMs: endsAtMs }, nowMs);
    const short = { token, organizationId, expiresAtMs: endsAtMs };
    this.#issued.set(id, short);
    return short;
  }

  /**
   * The token that the console's own use of an organization is booked under, made when it is first needed. Its secret is
   * kept by nobody. Undefined where there is no such organization.
   */
  async consoleToken(organizationId: string): Promise<TokenRow | undefined> {
    const { accounts, clock, random } = this.#options;
    const id = `tok_console_${organizationId.replace(/^org_/, "")}`;
    const found = await accounts.token(id);
    if (found !== undefined || (await accounts.organization(organizationId)) === undefined) return found;
    const { hash, prefix } = makeToken(random);
    const row: TokenRow = {
      id,
      organizationId,
      name: "Console playground",
      hash,
      prefix,
      scopes: ["chat.completions:write", "models:read"],
      models: null,
      limits: null,
      createdAtMs: clock(),
      expiresAtMs: null,
      revokedAtMs: null,
      lastUsedAtMs: null,
    };
    try {
      await accounts.insertToken(row, null);
      return row;
    } catch (error) {
      // Another node may have made it meanwhile.
      const made = await accounts.token(id);
      if (made === undefined) throw error;
      return made;
    }
  }
}
