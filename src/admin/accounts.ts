import type { AuditAction } from "../api/admin/reports.ts";
import { DEFAULT_SCOPES, type LimitSettings, SCOPES, type Scope } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { formatCredits, type MicroCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import type {
  AccountRows,
  OrganizationChange,
  OrganizationRow,
  TokenRow,
  TokenWithBudget,
} from "../stores/queries/accounts.ts";
import type { TokenChange } from "../stores/queries/token-changes.ts";
import { type Actor, type AuditTime, auditRow, type Change } from "./audit.ts";
import { makeId, makeToken, type RandomBytes } from "./token.ts";

export interface AccountsOptions extends AuditTime {
  rows: AccountRows;
  random: RandomBytes;
  /** Who makes the changes, for the audit log. */
  actor: Actor;
}

export interface TokenDraft {
  organizationId: string;
  name: string;
  /** Null: `DEFAULT_SCOPES`. */
  scopes: string[] | null;
  /** Null: every model. */
  models: string[] | null;
  limits: Partial<LimitSettings> | null;
  expiresAtMs: number | null;
  /** Credits that it may use in total; null: no cap of its own. */
  cap: MicroCredits | null;
}

type TokenTerms = Pick<
  TokenRow,
  "organizationId" | "name" | "scopes" | "models" | "limits" | "createdAtMs" | "expiresAtMs"
>;

/** A token at the only moment when its secret is known. */
export interface NewToken {
  row: TokenRow;
  token: string;
}

export type CreateTokenOutcome = ({ outcome: "created" } & NewToken) | { outcome: "unknown_organization" };
export type ChangeTokenOutcome =
  | { outcome: "changed"; row: TokenWithBudget }
  | { outcome: "unknown_token" }
  /** The token was revoked, or has expired. */
  | { outcome: "ended"; row: TokenRow };
export type RevokeTokenOutcome =
  | { outcome: "revoked"; row: TokenRow; repeated: boolean }
  | { outcome: "unknown_token" };
export type RotateOutcome =
  | ({ outcome: "rotated"; predecessor: TokenRow } & NewToken)
  | { outcome: "unknown_token" }
  /** The token was revoked, or has expired. */
  | { outcome: "ended"; row: TokenRow }
  /** The token has a successor; `isUsed`: that one was used or rotated, so it cannot be replaced. */
  | { outcome: "already_rotated"; successorId: string; isUsed: boolean };

const PAGE_ROWS = 500;
const NAME = /^(?=.*\S)[^\p{Cc}\p{Zl}\p{Zp}]{1,200}$/u;

/** A value that is not allowed; `param` names it. */
export class InvalidValueError extends OperatorError {
  readonly param: string;

  constructor(param: string, found: string, expected: string) {
    super(`${param} is ${found}, but must be ${expected}.`);
    this.name = "InvalidValueError";
    this.param = param;
  }
}

/** Creates, finds, changes, rotates and revokes organizations and tokens. Each change writes an audit record. */
export class Accounts {
  readonly #options: AccountsOptions;
  readonly #rows: AccountRows;
  readonly #clock: () => number;
  readonly #random: RandomBytes;

  constructor(options: AccountsOptions) {
    this.#options = options;
    this.#rows = options.rows;
    this.#clock = options.clock;
    this.#random = options.random;
  }

  /** Returns the same use cases, on behalf of another actor. */
  as(actor: Actor): Accounts {
    return new Accounts({ ...this.#options, actor });
  }

  /** Creates an organization without credits. Throws InvalidValueError. */
  async createOrganization(name: string, limits: Partial<LimitSettings> | null = null): Promise<OrganizationRow> {
    checkName(name);
    checkLimits(limits);
    const row: OrganizationRow = {
      id: makeId("org", this.#random),
      name,
      kind: "standard",
      status: "active",
      limits,
      createdAtMs: this.#clock(),
      keepsConversations: false,
      pausesAllowances: false,
    };
    await this.#rows.insertOrganization(
      row,
      this.#record({
        action: "organization.create",
        organizationId: row.id,
        subjectId: row.id,
        after: { name, limits },
      }),
    );
    return row;
  }

  /**
   * Changes an organization; undefined if it does not exist. Its allowances are paused only together with it, and resumed with
   * it: the months that begin in between are not granted. Throws InvalidValueError.
   */
  async changeOrganization(id: string, wanted: OrganizationChange): Promise<OrganizationRow | undefined> {
    const { status, pausesAllowances = false } = wanted;
    if (pausesAllowances && status !== "paused") {
      throw new InvalidValueError("pauses_allowances", "true", 'false, or sent with "status": "paused"');
    }
    const change = { ...wanted, ...(status !== undefined && { pausesAllowances }) };
    if (change.name !== undefined) checkName(change.name);
    checkLimits(change.limits ?? null);
    const subject = { action: "organization.change" as const, organizationId: id, subjectId: id };
    return this.#rows.changeOrganization(id, change, (before, after) => this.#record({ ...subject, before, after }));
  }

  organization(id: string): Promise<OrganizationRow | undefined> {
    return this.#rows.organization(id);
  }

  /** Lists all organizations, the oldest first. */
  organizations(): Promise<OrganizationRow[]> {
    return allPages((page) => this.#rows.organizations(page));
  }

  /** Creates a token. Throws InvalidValueError. */
  async createToken(draft: TokenDraft): Promise<CreateTokenOutcome> {
    checkName(draft.name);
    const scopes = scopesOf(draft.scopes);
    checkLimits(draft.limits);
    const nowMs = this.#clock();
    checkExpiry(draft.expiresAtMs, nowMs);
    if ((await this.#rows.organization(draft.organizationId)) === undefined) return { outcome: "unknown_organization" };
    const made = this.#newToken({ ...draft, scopes, createdAtMs: nowMs, callerId: null });
    const after = { ...termsOf(made.row), ...auditedTerms({ cap: draft.cap }, ["cap"]) };
    await this.#rows.insertToken(made.row, draft.cap, this.#record(changeOf("token.create", made.row, { after })));
    return { outcome: "created", ...made };
  }

  /**
   * Changes terms of a token; absent ones stay unchanged, so that concurrent changes of different terms are all kept. A cap
   * counts what the token has spent since it was created: below that, it refuses new requests. Throws InvalidValueError.
   */
  async changeToken(
    id: string,
    { scopes, ...change }: Partial<Omit<TokenDraft, "organizationId">>,
  ): Promise<ChangeTokenOutcome> {
    if (change.name !== undefined) checkName(change.name);
    checkLimits(change.limits ?? null);
    checkExpiry(change.expiresAtMs ?? null, this.#clock());
    const wanted = { ...change, ...(scopes !== undefined && { scopes: scopesOf(scopes) }) };
    for (;;) {
      const old = await this.#rows.token(id);
      if (old === undefined) return { outcome: "unknown_token" };
      if (hasEnded(old, this.#clock())) return { outcome: "ended", row: old };
      const terms = { ...old, cap: old.budget?.cap ?? null };
      const fields = (Object.keys(wanted) as (keyof TokenChange)[]).filter((field) => {
        const [present, next] = [terms, wanted].map((of) => JSON.stringify(auditedTerms(of, [field])));
        return present !== next;
      });
      if (fields.length === 0) return { outcome: "changed", row: old };
      const audited = { before: auditedTerms(terms, fields), after: auditedTerms(wanted, fields) };
      const values: TokenChange = Object.fromEntries(fields.map((field) => [field, wanted[field]]));
      const record = this.#record(changeOf("token.change", old, audited));
      if (await this.#rows.changeToken(old, values, record)) {
        return { outcome: "changed", row: (await this.#rows.token(id)) ?? old };
      }
    }
  }

  /** Lists all tokens of an organization (null: of every organization), the oldest first. */
  tokens(organizationId: string | null): Promise<TokenWithBudget[]> {
    return allPages((page) => this.#rows.tokens({ ...page, organizationId }));
  }

  /** Revokes a token at once. A repetition returns the first revocation. */
  async revokeToken(id: string): Promise<RevokeTokenOutcome> {
    const old = await this.#rows.token(id);
    if (old === undefined) return { outcome: "unknown_token" };
    if (old.revokedAtMs !== null) return { outcome: "revoked", row: old, repeated: true };
    const record = this.#record(changeOf("token.revoke", old, { before: termsOf(old) }));
    const revoked = await this.#rows.revokeToken(id, this.#clock(), record);
    return { outcome: "revoked", row: (await this.#rows.token(id)) ?? old, repeated: !revoked };
  }

  /**
   * Creates a token with the name, rights and lifetime of another, which ends after `overlapMs` (or at its own expiry, if
   * that comes first), so that clients can change over without an interruption. A token is rotated once. With `replace`,
   * a successor that was never used is revoked and created again; the token itself then keeps its end.
   */
  async rotateToken(id: string, overlapMs: number, options: { replace?: boolean } = {}): Promise<RotateOutcome> {
    const old = await this.#rows.token(id);
    if (old === undefined) return { outcome: "unknown_token" };
    const successor = old.successorId === null ? undefined : await this.#rows.token(old.successorId);
    if (successor !== undefined) {
      const isUsed = successor.lastUsedAtMs !== null || successor.successorId !== null;
      if (options.replace !== true || isUsed) return { outcome: "already_rotated", successorId: successor.id, isUsed };
    } else if (hasEnded(old, this.#clock())) {
      return { outcome: "ended", row: old };
    }
    const rotated = await this.#rotate(old, successor, overlapMs);
    // Otherwise one of the tokens was rotated, revoked or used meanwhile: report that.
    return rotated ?? this.rotateToken(id, overlapMs);
  }

  /** Returns undefined if one of the tokens has changed since it was read. */
  async #rotate(old: TokenRow, unused: TokenRow | undefined, overlapMs: number): Promise<RotateOutcome | undefined> {
    const nowMs = this.#clock();
    const lifeMs = lifeOf(unused ?? old);
    const made = this.#newToken({
      ...old,
      createdAtMs: nowMs,
      expiresAtMs: lifeMs === null ? null : nowMs + lifeMs,
    });
    const overlapEndsAtMs = unused === undefined ? nowMs + overlapMs : Number.POSITIVE_INFINITY;
    const oldExpiresAtMs = Math.min(old.expiresAtMs ?? Number.POSITIVE_INFINITY, overlapEndsAtMs);
    const after = { successor: made.row.id, expiresAt: isoTime(oldExpiresAtMs) };
    const before = { ...termsOf(old), ...(unused !== undefined && { successor: unused.id }) };
    const record = this.#record(changeOf("token.rotate", old, { before, after }));
    const isWritten =
      unused === undefined
        ? await this.#rows.replaceToken(old.id, oldExpiresAtMs, made.row, record)
        : await this.#rows.replaceSuccessor(
            { oldId: old.id, unusedId: unused.id, oldExpiresAtMs, atMs: nowMs, successor: made.row },
            record,
          );
    if (!isWritten) return undefined;
    return { outcome: "rotated", predecessor: { ...old, expiresAtMs: oldExpiresAtMs }, ...made };
  }

  #record(change: Change) {
    return auditRow(this.#options.actor, change, this.#options);
  }

  /** `callerId` is null for a token that no rotation makes. */
  #newToken(from: TokenTerms & { callerId: string | null }): NewToken {
    const { token, hash, prefix } = makeToken(this.#random);
    const { organizationId, name, scopes, models, limits, createdAtMs, expiresAtMs } = from;
    const id = makeId("tok", this.#random);
    const terms = {
      scopes,
      models,
      limits,
      createdAtMs,
      expiresAtMs,
      revokedAtMs: null,
      lastUsedAtMs: null,
      successorId: null,
      callerId: from.callerId ?? id,
    };
    return { token, row: { id, organizationId, name, hash, prefix, ...terms } };
  }
}

/** Returns the lifetime that a token was created with, in milliseconds; null: it has no expiry. */
function lifeOf({ createdAtMs, expiresAtMs }: TokenRow): number | null {
  return expiresAtMs === null ? null : expiresAtMs - createdAtMs;
}

function changeOf(action: AuditAction, token: TokenRow, rest: Pick<Change, "before" | "after">): Change {
  return { action, organizationId: token.organizationId, subjectId: token.id, ...rest };
}

/** Returns the terms of a token for the audit log, without its secret or hash. */
function termsOf({ name, prefix, scopes, models, limits, expiresAtMs }: TokenRow): Record<string, unknown> {
  return { name, prefix, scopes, models, limits, expiresAt: isoTime(expiresAtMs) };
}

/** Returns the values of some terms for the audit log. */
function auditedTerms(terms: TokenChange, fields: readonly (keyof TokenChange)[]): Record<string, unknown> {
  const { cap = null, expiresAtMs = null } = terms;
  const entries = fields.map((field): [string, unknown] => {
    if (field === "cap") return [field, cap === null ? null : formatCredits(cap)];
    return field === "expiresAtMs" ? ["expiresAt", isoTime(expiresAtMs)] : [field, terms[field]];
  });
  return Object.fromEntries(entries);
}

function hasEnded({ revokedAtMs, expiresAtMs }: TokenRow, nowMs: number): boolean {
  return revokedAtMs !== null || (expiresAtMs !== null && expiresAtMs <= nowMs);
}

async function allPages<Row extends { id: string; createdAtMs: number }>(
  read: (page: { after: string | null; limit: number }) => Promise<Row[]>,
): Promise<Row[]> {
  const rows: Row[] = [];
  let page: Row[];
  do {
    page = await read({ after: rows.at(-1)?.id ?? null, limit: PAGE_ROWS });
    rows.push(...page);
  } while (page.length === PAGE_ROWS);
  return rows.sort((a, b) => a.createdAtMs - b.createdAtMs);
}

function checkName(name: string): void {
  if (NAME.test(name)) return;
  throw new InvalidValueError("name", shortText(name), "1 to 200 characters on one line, not all of them spaces");
}

function checkExpiry(expiresAtMs: number | null, nowMs: number): void {
  if (expiresAtMs === null || expiresAtMs > nowMs) return;
  throw new InvalidValueError("expiry", isoTime(expiresAtMs), "a time in the future");
}

/** Returns the scopes in their order; null: the default ones. Throws InvalidValueError. */
function scopesOf(scopes: string[] | null): Scope[] {
  if (scopes === null) return [...DEFAULT_SCOPES];
  for (const scope of scopes) {
    if (!(SCOPES as readonly string[]).includes(scope)) {
      throw new InvalidValueError("scope", shortText(scope), `one of: ${SCOPES.join(", ")}`);
    }
  }
  return SCOPES.filter((scope) => scopes.includes(scope));
}

function checkLimits(limits: Partial<LimitSettings> | null): void {
  for (const [name, value] of Object.entries(limits ?? {})) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new InvalidValueError(name, `${value}`, "an integer, 1 or more");
    }
  }
}

function shortText(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}
