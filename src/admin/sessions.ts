import type { Role } from "../api/admin/roles.ts";
import type { Scope } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { ApiError } from "../errors.ts";
import type { AccountRows, TokenRow } from "../stores/queries/accounts.ts";
import type { AdminRows, OperatorRow, Person, SessionRow } from "../stores/queries/admin.ts";
import type { Log } from "../telemetry/logger.ts";
import { type Actor, type AuditTime, auditRow, type Change } from "./audit.ts";
import {
  ADMIN_TOKEN_MARK,
  displayPrefix,
  hashOf,
  idOfPerson,
  makeSecret,
  parseToken,
  type RandomBytes,
  SESSION_IDLE_MS,
} from "./token.ts";

export interface SessionsOptions extends AuditTime {
  rows: AdminRows;
  accounts: Pick<AccountRows, "token" | "tokenByHash">;
  failures: Pick<SignInFailures, "record">;
  /** Returns whether a person may still have a session: their issuer is configured, and they are not blocked. */
  isAdmitted(person: Person): Promise<boolean>;
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

/** A caller of the admin API. */
export interface Administrator {
  role: Role;
  /** Id and name of the operator, of a member's token, or of a person at an identity provider. */
  id: string;
  name: string;
  /** First characters of the token. A person has none. */
  prefix: string | null;
  /** The organization that the role is limited to; null: none. */
  organizationId: string | null;
  /** The token that a member signed in with. */
  token: TokenRow | null;
  /** Who signed in with an identity provider. */
  person: Person | null;
  /** Null: the request carries the operator's token itself. */
  session: SessionReference | null;
}

/** Returns whose share of the service an administrator uses: that of an organization, or that of an operator. */
export function shareOwnerOf({ organizationId, id }: Administrator): string {
  return organizationId ?? id;
}

/** Scope that a token of an organization needs to sign in. */
export const MEMBER_SCOPE: Scope = "console:read";

/** Longest life of a session. */
const LIFE_MS = 7 * 86_400_000;
/** Longest life of a role that claims have given. After it, the identity provider is asked again. */
const CLAIMED_LIFE_MS = 3_600_000;
const TOUCH_AFTER_MS = 60_000;

type Holder = Omit<Administrator, "session">;

/** A session at the only moment when its secret is known. */
export interface BegunSession {
  secret: string;
  who: Administrator;
  expiresAtMs: number;
}

type TokenRefusal = "unknown_token" | "revoked_token" | "expired_token" | "insufficient_scope" | "playground_token";

interface Refused {
  reason: TokenRefusal;
  /** The token that was presented, where it is known. */
  row?: { id: string; organizationId: string | null };
}

const UNKNOWN_TOKEN = () => new ApiError("invalid_token", "The token is not valid.");
const REFUSALS: Record<TokenRefusal, () => ApiError> = {
  unknown_token: UNKNOWN_TOKEN,
  revoked_token: UNKNOWN_TOKEN,
  expired_token: () => new ApiError("expired_token"),
  playground_token: () => new ApiError("usage_not_available_for_playground"),
  insufficient_scope: () =>
    new ApiError("insufficient_scope", `To sign in, the token needs the scope \`${MEMBER_SCOPE}\`.`),
};

/**
 * Sessions of the console, stored in the database, so that every node knows them. A session ends with the token that it
 * began with, and that of a person when their issuer is removed or they are blocked. Secrets are found by their hash and never
 * compared character by character. Every sign-in, also a refused one, and every sign-out is recorded.
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
  async signIn(token: string, origin: Origin, countFailure: () => Promise<void>): Promise<BegunSession> {
    const found = await this.#presenterOf(token);
    if ("reason" in found) {
      await countFailure();
      await this.#recordRefusal(token, origin, found);
      throw REFUSALS[found.reason]();
    }
    const { clock, noteUse } = this.#options;
    const { id, token: memberToken } = found;
    if (memberToken !== null) noteUse(id, clock(), memberToken.lastUsedAtMs === null);
    return this.#begin(found, origin);
  }

  /** Begins a session of a person whose claims an identity provider has confirmed. */
  async signInPerson(person: Person, origin: Origin): Promise<BegunSession> {
    if (!(await this.#options.isAdmitted(person))) {
      await this.recordRefusedPerson({ reason: "blocked", prefix: null, token: null, account: person.name }, origin);
      throw new ApiError("insufficient_role", "An operator has blocked your account.");
    }
    return this.#begin(holderOfPerson(person), origin);
  }

  /** Begins a session with a new secret, so that a cookie from before the sign-in never gets its rights. */
  async #begin(holder: Holder, origin: Origin): Promise<BegunSession> {
    const { rows, clock, random } = this.#options;
    const nowMs = clock();
    const secret = makeSecret(random);
    const { id, token, person } = holder;
    const lifeMs = person === null ? LIFE_MS : CLAIMED_LIFE_MS;
    const row: SessionRow = {
      hash: hashOf(secret),
      operatorId: token === null && person === null ? id : null,
      tokenId: token?.id ?? null,
      person,
      createdAtMs: nowMs,
      seenAtMs: nowMs,
      expiresAtMs: Math.min(nowMs + lifeMs, token?.expiresAtMs ?? Number.POSITIVE_INFINITY),
    };
    const after = { expiresAt: isoTime(row.expiresAtMs) };
    await rows.insertSession(row, this.#record(holder, origin, { action: "session.sign_in", after }));
    return { secret, who: { ...holder, session: row }, expiresAtMs: row.expiresAtMs };
  }

  /** Finds the caller by the secret of a cookie, while the session and its token are valid. */
  async find(secret: string): Promise<Administrator | undefined> {
    const { rows, clock } = this.#options;
    const row = await rows.session(hashOf(secret));
    const nowMs = clock();
    if (row === undefined || nowMs >= row.expiresAtMs || nowMs >= row.seenAtMs + SESSION_IDLE_MS) return undefined;
    const held = await this.#holderOf(row);
    if (held?.isValid !== true) {
      // Its playground tokens end with it.
      if (row.person !== null) await rows.deleteSession(row.hash);
      return undefined;
    }
    if (nowMs - row.seenAtMs >= TOUCH_AFTER_MS) await rows.touchSession(row.hash, nowMs);
    return { ...held.holder, session: row };
  }

  /** Ends a session and the playground tokens that were created in it. */
  async end(secret: string, origin: Origin): Promise<void> {
    const row = await this.#options.rows.session(hashOf(secret));
    const held = row && (await this.#holderOf(row));
    if (row === undefined || held === undefined) return;
    await this.#options.rows.deleteSession(row.hash, this.#record(held.holder, origin, { action: "session.sign_out" }));
  }

  /** Finds the operator or auditor of a token. */
  async operatorOf(token: string): Promise<Administrator | undefined> {
    const found = await this.#operatorOf(token);
    return "reason" in found ? undefined : { ...found, session: null };
  }

  /** Records a token that `operatorOf` refused. */
  async recordRefused(token: string, origin: Origin): Promise<void> {
    const found = await this.#operatorOf(token);
    if ("reason" in found) await this.#recordRefusal(token, origin, found);
  }

  /** Records a sign-in with an identity provider that was refused. */
  recordRefusedPerson(failure: SignInFailure, origin: Origin): Promise<void> {
    return this.#options.failures.record(origin, failure);
  }

  #recordRefusal(token: string, origin: Origin, { reason, row }: Refused): Promise<void> {
    const failure = { reason, prefix: displayPrefix(token), token: row ?? null, account: null };
    return this.#options.failures.record(origin, failure);
  }

  async #presenterOf(token: string): Promise<Holder | Refused> {
    if (token.startsWith(ADMIN_TOKEN_MARK)) return this.#operatorOf(token);
    const fingerprint = parseToken(token);
    const row = fingerprint && (await this.#options.accounts.tokenByHash(fingerprint.hash));
    if (row === undefined) return { reason: "unknown_token" };
    if (row.revokedAtMs !== null || row.creatorBlockedAtMs !== null) return { reason: "revoked_token", row };
    if (this.#hasEnded(row)) return { reason: "expired_token", row };
    if (row.organizationKind === "playground") return { reason: "playground_token", row };
    if (!row.scopes.includes(MEMBER_SCOPE)) return { reason: "insufficient_scope", row };
    return memberIn(row);
  }

  async #operatorOf(token: string): Promise<Holder | Refused> {
    const fingerprint = parseToken(token, ADMIN_TOKEN_MARK);
    const row = fingerprint && (await this.#options.rows.operatorByHash(fingerprint.hash));
    if (row === undefined) return { reason: "unknown_token" };
    if (row.revokedAtMs !== null) return { reason: "revoked_token", row: { id: row.id, organizationId: null } };
    return operatorIn(row);
  }

  /** Returns the holder of a session, and whether they may go on. */
  async #holderOf({
    operatorId,
    tokenId,
    person,
  }: SessionRow): Promise<{ holder: Holder; isValid: boolean } | undefined> {
    const { rows, accounts, isAdmitted } = this.#options;
    if (person !== null) return { holder: holderOfPerson(person), isValid: await isAdmitted(person) };
    const operator = operatorId === null ? undefined : await rows.operator(operatorId);
    if (operator !== undefined) return { holder: operatorIn(operator), isValid: operator.revokedAtMs === null };
    const token = tokenId === null ? undefined : await accounts.token(tokenId);
    if (token === undefined) return undefined;
    const isBlocked = (await accounts.tokenByHash(token.hash))?.creatorBlockedAtMs !== null;
    // The scopes of a token may change after its sign-in.
    const isValid =
      !isBlocked && token.revokedAtMs === null && !this.#hasEnded(token) && token.scopes.includes(MEMBER_SCOPE);
    return { holder: memberIn(token), isValid };
  }

  #hasEnded({ expiresAtMs }: TokenRow): boolean {
    return expiresAtMs !== null && this.#options.clock() >= expiresAtMs;
  }

  #record({ role: kind, id, name, organizationId }: Holder, origin: Origin, change: Pick<Change, "action" | "after">) {
    const actor: Actor = { kind, id, name, ...origin };
    return auditRow(actor, { ...change, organizationId, subjectId: id }, this.#options);
  }
}

function operatorIn({ role, id, name, prefix }: OperatorRow): Holder {
  return { role, id, name, prefix, organizationId: null, token: null, person: null };
}

function memberIn(token: TokenRow): Holder {
  const { id, name, prefix, organizationId } = token;
  return { role: "member", id, name, prefix, organizationId, token, person: null };
}

function holderOfPerson(person: Person): Holder {
  const { role, name, organizationId } = person;
  return { role, id: idOfPerson(person), name, prefix: null, organizationId, token: null, person };
}

export interface SignInFailuresOptions extends AuditTime {
  rows: Pick<AdminRows, "insertFailedSignIn">;
  log: Log;
}

export interface SignInFailure {
  reason: TokenRefusal | "no_role" | "blocked" | "rejected_response";
  /** First characters of the token that was presented; null where it does not look like a token. */
  prefix: string | null;
  /** The token that was presented; null if it is unknown. */
  token: { id: string; organizationId: string | null } | null;
  /** The account at an identity provider, or the provider; null for a token. */
  account: string | null;
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
    const actor: Actor = { kind: "anonymous", id: null, name: null, ...origin };
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
    async record({ address, requestId }: Origin, { reason, prefix, token, account }: SignInFailure): Promise<void> {
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
      await insert({ address, requestId }, token, account === null ? { reason, token: prefix } : { reason, account });
    },
  };
}
