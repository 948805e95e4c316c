import type { Scope } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { ApiError } from "../errors.ts";
import type { AccountRows, TokenRow } from "../stores/queries/accounts.ts";
import type { AdminRows, AdminTokenRow, SessionRow } from "../stores/queries/admin.ts";
import type { Log } from "../telemetry/logger.ts";
import { type Actor, type AuditTime, auditRow, SERVICE_ACTOR } from "./audit.ts";
import {
  ADMIN_TOKEN_MARK,
  displayPrefix,
  hashOf,
  makeId,
  makeSecret,
  makeToken,
  parseToken,
  type RandomBytes,
} from "./token.ts";

export interface SessionsOptions extends AuditTime {
  rows: AdminRows;
  accounts: Pick<AccountRows, "token" | "tokenByHash">;
  failures: Pick<SignInFailures, "record">;
  random: RandomBytes;
  /** Called when an organization's token is used to sign in. */
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
}

/** The session of a request. */
export interface SessionReference {
  /** SHA-256 of its secret. */
  hash: Uint8Array;
  expiresAtMs: number;
}

/** A caller who may see and do everything. */
export interface Operator {
  role: "operator";
  adminToken: { id: string; prefix: string };
  /** Null: the request carries the admin token itself. */
  session: SessionReference | null;
}
/** A caller who may see the organization of their token. */
export interface Member {
  role: "member";
  token: TokenRow;
  session: SessionReference;
}
export type Administrator = Operator | Member;

/** Returns whose share of the service an administrator uses: that of an organization, or that of an admin token. */
export function shareOwnerOf(who: Administrator): string {
  return who.role === "operator" ? who.adminToken.id : who.token.organizationId;
}

/** Scope that a token of an organization needs to sign in. */
export const MEMBER_SCOPE: Scope = "console:read";

/** Longest time without a request. */
const IDLE_MS = 8 * 3_600_000;
/** Longest life of a session. */
const LIFE_MS = 7 * 86_400_000;
const TOUCH_AFTER_MS = 60_000;

type Holder = Omit<Operator, "session"> | Omit<Member, "session">;

interface Refused {
  reason: SignInFailure["reason"];
  /** The token that was presented, where it is known. */
  row?: { id: string; organizationId: string | null };
}

const UNKNOWN_TOKEN = () => new ApiError("invalid_token", "The token is not valid.");
const REFUSALS: Record<SignInFailure["reason"], () => ApiError> = {
  unknown_token: UNKNOWN_TOKEN,
  revoked_token: UNKNOWN_TOKEN,
  expired_token: () => new ApiError("expired_token"),
  playground_token: () => new ApiError("usage_not_available_for_playground"),
  insufficient_scope: () =>
    new ApiError("insufficient_scope", `To sign in, the token needs the scope \`${MEMBER_SCOPE}\`.`),
};

/**
 * Sessions of the console, stored in the database, so that every node knows them. A session ends with the token that it
 * began with. Secrets are found by their hash and never compared character by character. Every sign-in, also a
 * refused one, and every sign-out is recorded.
 */
export class Sessions {
  readonly #options: SessionsOptions;

  constructor(options: SessionsOptions) {
    this.#options = options;
  }

  /**
   * Begins a session with a new secret. For a token that is refused it calls `countFailure` first, whose error refuses the
   * attempt without a record. A valid token is never counted: failures of others must not lock its holder out. Rejects
   * with ApiError.
   */
  async signIn(
    token: string,
    origin: Origin,
    countFailure: () => Promise<void>,
  ): Promise<{ secret: string; who: Administrator; expiresAtMs: number }> {
    const found = await this.#holderOf(token);
    if ("reason" in found) {
      await countFailure();
      await this.#recordRefusal(token, origin, found);
      throw REFUSALS[found.reason]();
    }
    const { rows, clock, random, noteUse } = this.#options;
    const nowMs = clock();
    const secret = makeSecret(random);
    const isOperator = found.role === "operator";
    if (!isOperator) noteUse(found.token.id, nowMs, found.token.lastUsedAtMs === null);
    const tokenEndsAtMs = isOperator ? null : found.token.expiresAtMs;
    const row: SessionRow = {
      hash: hashOf(secret),
      adminTokenId: isOperator ? found.adminToken.id : null,
      tokenId: isOperator ? null : found.token.id,
      createdAtMs: nowMs,
      seenAtMs: nowMs,
      expiresAtMs: Math.min(nowMs + LIFE_MS, tokenEndsAtMs ?? Number.POSITIVE_INFINITY),
    };
    const after = { expiresAt: isoTime(row.expiresAtMs) };
    await rows.insertSession(row, this.#record(found, origin, { action: "session.sign_in", after }));
    return { secret, who: { ...found, session: row }, expiresAtMs: row.expiresAtMs };
  }

  /** Finds the caller by the secret of a cookie, while the session and its token are valid. */
  async find(secret: string): Promise<Administrator | undefined> {
    const { rows, clock } = this.#options;
    const row = await rows.session(hashOf(secret));
    const nowMs = clock();
    if (row === undefined || nowMs >= row.expiresAtMs || nowMs >= row.seenAtMs + IDLE_MS) return undefined;
    const who = row.tokenId === null ? await this.#operator(row.adminTokenId) : await this.#member(row.tokenId);
    if (who === undefined) return undefined;
    if (nowMs - row.seenAtMs >= TOUCH_AFTER_MS) await rows.touchSession(row.hash, nowMs);
    return { ...who, session: row };
  }

  /** Ends a session and the playground tokens that were created in it. */
  async end(secret: string, origin: Origin): Promise<void> {
    const { rows, accounts } = this.#options;
    const row = await rows.session(hashOf(secret));
    if (row === undefined) return;
    const token = row.tokenId === null ? undefined : await accounts.token(row.tokenId);
    const kind = row.tokenId === null ? "operator" : "member";
    const actor: Actor = { kind, id: row.adminTokenId ?? row.tokenId, ...origin };
    const subject = { organizationId: token?.organizationId ?? null, subjectId: actor.id };
    await rows.deleteSession(row.hash, auditRow(actor, { action: "session.sign_out", ...subject }, this.#options));
  }

  /** Finds the operator of an admin token. */
  async operatorOf(token: string): Promise<Operator | undefined> {
    const found = await this.#adminTokenOf(token);
    return "reason" in found ? undefined : { ...found, session: null };
  }

  /** Records an admin token that was refused. */
  async recordRefused(token: string, origin: Origin): Promise<void> {
    const found = await this.#adminTokenOf(token);
    if ("reason" in found) await this.#recordRefusal(token, origin, found);
  }

  #recordRefusal(token: string, origin: Origin, { reason, row }: Refused): Promise<void> {
    return this.#options.failures.record(origin, { reason, prefix: displayPrefix(token), token: row ?? null });
  }

  async #holderOf(token: string): Promise<Holder | Refused> {
    if (token.startsWith(ADMIN_TOKEN_MARK)) return this.#adminTokenOf(token);
    const fingerprint = parseToken(token);
    const row = fingerprint && (await this.#options.accounts.tokenByHash(fingerprint.hash));
    if (row === undefined) return { reason: "unknown_token" };
    if (row.revokedAtMs !== null) return { reason: "revoked_token", row };
    if (this.#hasEnded(row)) return { reason: "expired_token", row };
    if (row.organizationKind === "playground") return { reason: "playground_token", row };
    if (!row.scopes.includes(MEMBER_SCOPE)) return { reason: "insufficient_scope", row };
    return { role: "member", token: row };
  }

  async #adminTokenOf(token: string): Promise<Omit<Operator, "session"> | Refused> {
    const fingerprint = parseToken(token, ADMIN_TOKEN_MARK);
    const row = fingerprint && (await this.#options.rows.adminTokenByHash(fingerprint.hash));
    if (row === undefined) return { reason: "unknown_token" };
    const { id, prefix } = row;
    if (row.revokedAtMs === null) return { role: "operator", adminToken: { id, prefix } };
    return { reason: "revoked_token", row: { id, organizationId: null } };
  }

  async #operator(adminTokenId: string | null): Promise<Omit<Operator, "session"> | undefined> {
    const row = adminTokenId === null ? undefined : await this.#options.rows.adminToken(adminTokenId);
    if (row === undefined || row.revokedAtMs !== null) return undefined;
    return { role: "operator", adminToken: { id: row.id, prefix: row.prefix } };
  }

  async #member(tokenId: string): Promise<Omit<Member, "session"> | undefined> {
    const token = await this.#options.accounts.token(tokenId);
    if (token === undefined || token.revokedAtMs !== null || this.#hasEnded(token)) return undefined;
    // The scopes of a token may change after its sign-in.
    if (!token.scopes.includes(MEMBER_SCOPE)) return undefined;
    return { role: "member", token };
  }

  #hasEnded({ expiresAtMs }: TokenRow): boolean {
    return expiresAtMs !== null && this.#options.clock() >= expiresAtMs;
  }

  #record(who: Holder, origin: Origin, change: { action: string; after: Record<string, unknown> }) {
    const [id, organizationId] =
      who.role === "operator" ? [who.adminToken.id, null] : [who.token.id, who.token.organizationId];
    return auditRow({ kind: who.role, id, ...origin }, { ...change, organizationId, subjectId: id }, this.#options);
  }
}

export interface SignInFailuresOptions extends AuditTime {
  rows: Pick<AdminRows, "insertFailedSignIn">;
  log: Log;
}

export interface SignInFailure {
  reason: "unknown_token" | "revoked_token" | "expired_token" | "insufficient_scope" | "playground_token";
  /** First characters of the token that was presented; null where it does not look like a token. */
  prefix: string | null;
  /** The token that was presented; null if it is unknown. */
  token: { id: string; organizationId: string | null } | null;
}

/** Origin of a request. */
export type Origin = Pick<Actor, "address" | "requestId">;

const WINDOW_MS = 60_000;
const ENTRIES_A_WINDOW = 20;
/** Number of entries of failed sign-ins in the store. */
const KEPT_ENTRIES = 10_000;

export type SignInFailures = ReturnType<typeof createSignInFailures>;

/**
 * Records failed sign-ins, at most 20 entries per minute on each node, so that an attacker cannot fill the store. Further
 * failures of that minute are counted in one entry. The store keeps the newest 10,000 of these entries.
 */
export function createSignInFailures({ rows, log, ...time }: SignInFailuresOptions) {
  let windowBeganAtMs = Number.NEGATIVE_INFINITY;
  let entries = 0;
  let omitted = 0;
  let timer: NodeJS.Timeout | undefined;
  const insert = async (
    origin: Origin,
    token: SignInFailure["token"],
    after: Record<string, string | number | null>,
  ) => {
    const subject = { organizationId: token?.organizationId ?? null, subjectId: token?.id ?? null };
    const actor: Actor = { kind: "anonymous", id: null, ...origin };
    const row = auditRow(actor, { action: "session.sign_in_failed", ...subject, after }, time);
    await rows.insertFailedSignIn(row, KEPT_ENTRIES);
  };
  /** Writes the count of further failures. Never rejects: a count that cannot be written is added to the next one. */
  const writeOmitted = async () => {
    const furtherAttempts = omitted;
    if (furtherAttempts === 0) return;
    omitted = 0;
    try {
      await insert({ address: null, requestId: null }, null, { furtherAttempts });
    } catch (error) {
      omitted += furtherAttempts;
      log.debug({ err: error }, "the count of failed sign-ins could not be written");
    }
  };
  return {
    start(): void {
      timer = setInterval(() => void writeOmitted(), WINDOW_MS).unref();
    },
    /** Records the count of the failures that have no entry of their own. */
    async stop(): Promise<void> {
      clearInterval(timer);
      await writeOmitted();
    },
    /** Records a failed sign-in. Rejects with StoreUnavailableError. */
    async record({ address, requestId }: Origin, { reason, prefix, token }: SignInFailure): Promise<void> {
      const nowMs = time.clock();
      const ageMs = nowMs - windowBeganAtMs;
      if (ageMs < 0 || ageMs >= WINDOW_MS) {
        await writeOmitted();
        windowBeganAtMs = nowMs;
        entries = 0;
      }
      if (entries >= ENTRIES_A_WINDOW) {
        omitted += 1;
        return;
      }
      entries += 1;
      await insert({ address, requestId }, token, { reason, token: prefix });
    },
  };
}

export interface AdminTokensOptions extends AuditTime {
  rows: AdminRows;
  random: RandomBytes;
}

/** Creates the admin token of a store that never had one; otherwise returns null. Only one of several callers gets it. */
export async function firstAdminToken(options: AdminTokensOptions): Promise<string | null> {
  const { token, row } = newAdminToken(options.random, options.clock());
  const record = auditRow(SERVICE_ACTOR, changeOf("admin_token.create", row), options);
  return (await options.rows.insertFirstAdminToken(row, record)) ? token : null;
}

/** Creates an admin token. All earlier ones end, and so do their sessions. */
export async function replaceAdminToken(
  options: AdminTokensOptions,
  actor: Actor,
): Promise<{ row: AdminTokenRow; token: string }> {
  const made = newAdminToken(options.random, options.clock());
  await options.rows.replaceAdminTokens(made.row, auditRow(actor, changeOf("admin_token.replace", made.row), options));
  return made;
}

function changeOf(action: string, { id, prefix }: AdminTokenRow) {
  return { action, organizationId: null, subjectId: id, after: { prefix } };
}

function newAdminToken(random: RandomBytes, nowMs: number): { row: AdminTokenRow; token: string } {
  const { token, hash, prefix } = makeToken(random, ADMIN_TOKEN_MARK);
  return { token, row: { id: makeId("adm", random), hash, prefix, createdAtMs: nowMs, revokedAtMs: null } };
}
