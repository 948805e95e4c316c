import type { Role } from "../api/admin/roles.ts";
import type { Scope } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { ApiError } from "../errors.ts";
import type { TokenRow, TokenWithOrganization } from "../stores/queries/accounts.ts";
import type { OperatorRow, Person, SessionRow } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { type Actor, type AuditTime, auditRow, type Change } from "./audit.ts";
import {
  ADMIN_TOKEN_MARK,
  CLAIMED_LIFE_MS,
  displayPrefix,
  hashOf,
  idOfPerson,
  isToken,
  makeSecret,
  type RandomBytes,
  SESSION_IDLE_MS,
} from "./token.ts";

export interface SessionsOptions extends AuditTime {
  rows: Store["admin"];
  accounts: Pick<Store["accounts"], "token" | "tokenByHash">;
  failures: Pick<SignInFailures, "record">;
  /** Returns whether a person may still have a session: the settings of their issuer gave it, and they are not blocked. */
  isAdmitted(person: Person): Promise<boolean>;
  random: RandomBytes;
  /** Called when an organization's token is used to sign in. */
  noteUse(tokenId: string, atMs: number, isFirst: boolean): void;
}

export type SessionReference = Pick<SessionRow, "hash" | "expiresAtMs">;

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
  token: TokenRow | null;
  /** Who signed in with an identity provider. */
  person: Person | null;
  /** Scopes that limit the JWT of a person; absent: all. */
  scopes?: ReadonlySet<Scope>;
  /** Null: the request carries the operator's token itself. */
  session: SessionReference | null;
}

/** Returns whose share of the service an administrator uses: that of an organization, or that of an operator. */
export function shareOwnerOf({ organizationId, id }: Administrator): string {
  return organizationId ?? id;
}

/** Scope that a token of an organization needs to sign in. */
export const MEMBER_SCOPE: Scope = "console:read";

const LIFE_MS = 7 * 86_400_000;
const TOUCH_AFTER_MS = 60_000;

type Holder = Omit<Administrator, "session">;

/** A session at the only moment when its secret is known. */
export type BegunSession = Awaited<ReturnType<Sessions["signIn"]>>;

type TokenRefusal = "unknown_token" | "revoked_token" | "expired_token" | "insufficient_scope" | "playground_token";

/** The holder of a token or a session, and why they are refused. An unknown token has no holder. */
type Known = { holder: Holder; refusal: null } | Refused;

interface Refused {
  holder: Holder | null;
  refusal: TokenRefusal;
}

const UNKNOWN: Refused = { holder: null, refusal: "unknown_token" };
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
 * Sessions of the console, which all nodes share. A session ends with its token, and that of a person with the settings that
 * gave it or when they are blocked. Every sign-in, also a refused one, and every sign-out is recorded.
 */
export class Sessions {
  readonly #options: SessionsOptions;

  constructor(options: SessionsOptions) {
    this.#options = options;
  }

  /**
   * Begins a session. Calls `countFailure` for a refused token only, so that failures of others never lock out the holder of a
   * valid one. Rejects with ApiError, or the error of `countFailure`.
   */
  async signIn(token: string, origin: Origin, countFailure: () => Promise<void>) {
    const { accounts } = this.#options;
    const { holder, refusal } = token.startsWith(ADMIN_TOKEN_MARK)
      ? await this.operatorOf(token)
      : this.#member(isToken(token) ? await accounts.tokenByHash(hashOf(token)) : undefined);
    if (refusal !== null) {
      await countFailure();
      await this.recordRefused(token, origin, { holder, refusal });
      throw REFUSALS[refusal]();
    }
    const { clock, noteUse } = this.#options;
    if (holder.token !== null) noteUse(holder.id, clock(), holder.token.lastUsedAtMs === null);
    return this.#begin(holder, origin);
  }

  signInPerson(person: Person, origin: Origin) {
    return this.#begin(holderOfPerson(person), origin);
  }

  /** Begins a session with a new secret, so that a cookie from before the sign-in never gets its rights. */
  async #begin(holder: Holder, origin: Origin) {
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
    const { holder, refusal } = await this.#bySession(row);
    if (refusal === null) {
      if (nowMs - row.seenAtMs >= TOUCH_AFTER_MS) await rows.touchSession(row.hash, nowMs);
      return { ...holder, session: row };
    }
    // Its playground tokens end with it.
    if (row.person !== null) await rows.deleteSession(row.hash);
    return undefined;
  }

  /** Ends a session and the playground tokens that were created in it. */
  async end(secret: string, origin: Origin): Promise<void> {
    const { rows } = this.#options;
    const row = await rows.session(hashOf(secret));
    const holder = row && (await this.#bySession(row)).holder;
    if (holder) await rows.deleteSession(hashOf(secret), this.#record(holder, origin, { action: "session.sign_out" }));
  }

  /** Returns the operator or the auditor with a token, or why it is refused. */
  async operatorOf(token: string): Promise<Known> {
    const isOne = isToken(token, ADMIN_TOKEN_MARK);
    return operatorIn(isOne ? await this.#options.rows.operatorByHash(hashOf(token)) : undefined);
  }

  /** Records a token that is refused; by default as one that is not known. */
  recordRefused(token: string, origin: Origin, { holder, refusal }: Refused = UNKNOWN): Promise<void> {
    const after = { reason: refusal, token: displayPrefix(token) };
    return this.#options.failures.record(origin, after, holder);
  }

  recordRefusedPerson(failure: SignInFailure, origin: Origin): Promise<void> {
    return this.#options.failures.record(origin, failure);
  }

  async #bySession({ operatorId, tokenId, person }: SessionRow): Promise<Known> {
    const { rows, accounts, isAdmitted } = this.#options;
    if (person !== null) {
      return { holder: holderOfPerson(person), refusal: (await isAdmitted(person)) ? null : "revoked_token" };
    }
    if (operatorId !== null) return operatorIn(await rows.operator(operatorId));
    const token = tokenId === null ? undefined : await accounts.token(tokenId);
    return this.#member(token && (await accounts.tokenByHash(token.hash)));
  }

  /** Returns the member with a token. Its scopes, too, may change after a sign-in. */
  #member(token: TokenWithOrganization | undefined): Known {
    if (token === undefined) return UNKNOWN;
    const { id, name, prefix, organizationId, revokedAtMs, isCreatorBlocked, expiresAtMs } = token;
    const holder: Holder = { role: "member", id, name, prefix, organizationId, token, person: null };
    if (revokedAtMs !== null || isCreatorBlocked) return { holder, refusal: "revoked_token" };
    if (expiresAtMs !== null && this.#options.clock() >= expiresAtMs) return { holder, refusal: "expired_token" };
    if (token.organization.kind === "playground") return { holder, refusal: "playground_token" };
    return { holder, refusal: token.scopes.includes(MEMBER_SCOPE) ? null : "insufficient_scope" };
  }

  #record({ role: kind, id, name, organizationId }: Holder, origin: Origin, change: Pick<Change, "action" | "after">) {
    const actor: Actor = { kind, id, name, ...origin };
    return auditRow(actor, { ...change, organizationId, subjectId: id }, this.#options);
  }
}

function operatorIn(operator: OperatorRow | undefined): Known {
  if (operator === undefined) return UNKNOWN;
  const { role, id, name, prefix, revokedAtMs } = operator;
  const holder: Holder = { role, id, name, prefix, organizationId: null, token: null, person: null };
  return { holder, refusal: revokedAtMs === null ? null : "revoked_token" };
}

function holderOfPerson(person: Person): Holder {
  const { role, name, organizationId } = person;
  return { role, id: idOfPerson(person), name, prefix: null, organizationId, token: null, person };
}

export interface SignInFailuresOptions extends AuditTime {
  rows: Pick<Store["admin"], "insertFailedSignIn">;
  log: Log;
}

export interface SignInFailure {
  reason: TokenRefusal | "no_role" | "blocked" | "rejected_response";
  /** First characters of the token that was presented; null where it does not look like a token. */
  token?: string | null;
  /** The account at an identity provider, or the provider. */
  account?: string;
}

export type Origin = Pick<Actor, "address" | "requestId">;

const WINDOW_MS = 60_000;
const ENTRIES_A_WINDOW = 20;
const KEPT_ENTRIES = 10_000;

export type SignInFailures = ReturnType<typeof createSignInFailures>;

/** Records failed sign-ins, at most 20 entries per minute on each node and 10,000 in the store, so that no attacker fills it. */
export function createSignInFailures({ rows, log, ...time }: SignInFailuresOptions) {
  let entries = 0;
  let furtherAttempts = 0;
  let timer: NodeJS.Timeout | undefined;
  const insert = async (origin: Origin, after: object, presented: Pick<Holder, "id" | "organizationId"> | null) => {
    const subject = { organizationId: presented?.organizationId ?? null, subjectId: presented?.id ?? null };
    const actor: Actor = { kind: "anonymous", id: null, name: null, ...origin };
    const change = { action: "session.sign_in_failed", ...subject, after: { ...after } };
    await rows.insertFailedSignIn(auditRow(actor, change, time), KEPT_ENTRIES);
  };
  /** Writes the count of further failures. Never rejects: a count that cannot be written is added to the next one. */
  const endWindow = async () => {
    const counted = furtherAttempts;
    entries = 0;
    furtherAttempts = 0;
    if (counted === 0) return;
    await insert({ address: null, requestId: null }, { furtherAttempts: counted }, null).catch((error: unknown) => {
      furtherAttempts += counted;
      log.debug({ err: error }, "the count of failed sign-ins could not be written");
    });
  };
  return {
    start(): void {
      timer = setInterval(() => void endWindow(), WINDOW_MS).unref();
    },
    /** Records the count of the failures that have no entry of their own. */
    async stop(): Promise<void> {
      clearInterval(timer);
      await endWindow();
    },
    /** Records a failed sign-in, and the token that was presented if it is known. Rejects with StoreUnavailableError. */
    async record(
      origin: Origin,
      failure: SignInFailure,
      presented: Pick<Holder, "id" | "organizationId"> | null = null,
    ): Promise<void> {
      if (entries < ENTRIES_A_WINDOW) {
        entries += 1;
        await insert(origin, failure, presented);
      } else furtherAttempts += 1;
    },
  };
}
