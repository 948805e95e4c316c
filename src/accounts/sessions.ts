import type { Scope } from "../contract/scope.ts";
import type { AccountRows, AdminRows, SessionRow, TokenRow } from "../stores/store.ts";
import { ADMIN_TOKEN_MARK, hashOf, makeSecret, parseToken, type RandomBytes } from "./token.ts";

export interface SessionsOptions {
  rows: AdminRows;
  accounts: Pick<AccountRows, "token" | "tokenByHash">;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
}

/** May see and do everything. */
export interface Operator {
  role: "operator";
  adminToken: { id: string; prefix: string };
}
/** May see what belongs to the organization of their token. */
export interface Member {
  role: "member";
  token: TokenRow;
}
export type Administrator = Operator | Member;

export interface OpenSession {
  who: Administrator;
  expiresAtMs: number;
}

export type SignInOutcome =
  | ({ outcome: "signed_in"; secret: string } & OpenSession)
  | { outcome: "unknown" | "expired" }
  /** A token without `MEMBER_SCOPE`. */
  | { outcome: "scope_missing" }
  /** The playground organization has no members. */
  | { outcome: "playground" };

/** The scope of an organization's token that allows to sign in. */
export const MEMBER_SCOPE: Scope = "console:read";

/** A session ends after so long without a request … */
const IDLE_MS = 8 * 3_600_000;
/** … and in any case after so long. */
const LIFE_MS = 7 * 86_400_000;
const TOUCH_AFTER_MS = 60_000;

/**
 * Sessions of the console, kept in the store, so that every node knows them. A session lasts no longer than the token
 * that it began with. Secrets are found by their hash and never compared character by character.
 */
export class Sessions {
  readonly #options: SessionsOptions;

  constructor(options: SessionsOptions) {
    this.#options = options;
  }

  /** Begins a session with a secret of its own, whatever the browser sent before. */
  async signIn(token: string): Promise<SignInOutcome> {
    const found = await this.#holderOf(token);
    if ("outcome" in found) return found;
    const { rows, clock, random } = this.#options;
    const nowMs = clock();
    const secret = makeSecret(random);
    const isOperator = found.role === "operator";
    const tokenEndsAtMs = isOperator ? null : found.token.expiresAtMs;
    const row: SessionRow = {
      hash: hashOf(secret),
      adminTokenId: isOperator ? found.adminToken.id : null,
      tokenId: isOperator ? null : found.token.id,
      createdAtMs: nowMs,
      seenAtMs: nowMs,
      expiresAtMs: Math.min(nowMs + LIFE_MS, tokenEndsAtMs ?? Number.POSITIVE_INFINITY),
    };
    await rows.insertSession(row);
    return { outcome: "signed_in", secret, who: found, expiresAtMs: row.expiresAtMs };
  }

  /** The session of a cookie's secret, while it lasts and its token is good. */
  async find(secret: string): Promise<OpenSession | undefined> {
    const { rows, clock } = this.#options;
    const row = await rows.session(hashOf(secret));
    const nowMs = clock();
    if (row === undefined || nowMs >= row.expiresAtMs || nowMs >= row.seenAtMs + IDLE_MS) return undefined;
    const who = row.tokenId === null ? await this.#operator(row.adminTokenId) : await this.#member(row.tokenId);
    if (who === undefined) return undefined;
    if (nowMs - row.seenAtMs >= TOUCH_AFTER_MS) await rows.touchSession(row.hash, nowMs);
    return { who, expiresAtMs: row.expiresAtMs };
  }

  async end(secret: string): Promise<void> {
    await this.#options.rows.deleteSession(hashOf(secret));
  }

  /** The operator whose admin token this is. */
  async operatorOf(token: string): Promise<Operator | undefined> {
    const fingerprint = parseToken(token, ADMIN_TOKEN_MARK);
    if (fingerprint === undefined) return undefined;
    const row = await this.#options.rows.adminTokenByHash(fingerprint.hash);
    if (row === undefined || row.revokedAtMs !== null) return undefined;
    return { role: "operator", adminToken: { id: row.id, prefix: row.prefix } };
  }

  async #holderOf(token: string): Promise<Administrator | Exclude<SignInOutcome, { outcome: "signed_in" }>> {
    if (token.startsWith(ADMIN_TOKEN_MARK)) return (await this.operatorOf(token)) ?? { outcome: "unknown" };
    const fingerprint = parseToken(token);
    const row = fingerprint && (await this.#options.accounts.tokenByHash(fingerprint.hash));
    if (row === undefined || row.revokedAtMs !== null) return { outcome: "unknown" };
    if (this.#hasEnded(row)) return { outcome: "expired" };
    if (row.organizationKind === "playground") return { outcome: "playground" };
    if (!row.scopes.includes(MEMBER_SCOPE)) return { outcome: "scope_missing" };
    return { role: "member", token: row };
  }

  async #operator(adminTokenId: string | null): Promise<Operator | undefined> {
    const row = adminTokenId === null ? undefined : await this.#options.rows.adminToken(adminTokenId);
    if (row === undefined || row.revokedAtMs !== null) return undefined;
    return { role: "operator", adminToken: { id: row.id, prefix: row.prefix } };
  }

  async #member(tokenId: string): Promise<Member | undefined> {
    const token = await this.#options.accounts.token(tokenId);
    if (token === undefined || token.revokedAtMs !== null || this.#hasEnded(token)) return undefined;
    // A session of an earlier version may have begun without the scope.
    if (!token.scopes.includes(MEMBER_SCOPE)) return undefined;
    return { role: "member", token };
  }

  #hasEnded({ expiresAtMs }: TokenRow): boolean {
    return expiresAtMs !== null && this.#options.clock() >= expiresAtMs;
  }
}
