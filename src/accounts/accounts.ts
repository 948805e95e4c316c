import { DEFAULT_SCOPES, SCOPES, type Scope } from "../contract/scope.ts";
import { formatCredits, type MicroCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import type { AccountRows, LimitSettings, OrganizationRow, TokenRow, TokenWithBudget } from "../stores/store.ts";
import { type Actor, type AuditTime, auditRow, type Change } from "./audit.ts";
import { makeId, makeToken, type RandomBytes } from "./token.ts";

export interface AccountsOptions extends AuditTime {
  rows: AccountRows;
  random: RandomBytes;
  /** On whose behalf changes are made. */
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
  /** Credits that it may use in all; null: whatever the organization has. */
  cap: MicroCredits | null;
}

/** A token at the one moment when its secret is known. */
export interface NewToken {
  row: TokenRow;
  token: string;
}

export type CreateTokenOutcome = ({ outcome: "created" } & NewToken) | { outcome: "unknown_organization" };
export type RevokeOutcome = { outcome: "revoked"; row: TokenRow; repeated: boolean } | { outcome: "unknown_token" };
export type RotateOutcome =
  | ({ outcome: "rotated"; predecessor: TokenRow } & NewToken)
  | { outcome: "unknown_token" }
  /** There is nothing to succeed to: the token was revoked, or has expired. */
  | { outcome: "ended"; row: TokenRow };

/** What is to be changed of an organization; what is absent stays. */
export type OrganizationChange = Partial<Pick<OrganizationRow, "name" | "status" | "limits" | "keepsConversations">>;

/** Why nothing is granted to guests. */
export const PLAYGROUND_HOLDS_NOTHING = "The playground organization holds no credits.";

const PAGE_ROWS = 500;
const NAME = /^(?=.*\S)[^\p{Cc}\p{Zl}\p{Zp}]{1,200}$/u;

/** Organizations and tokens: made, found, changed, rotated and revoked, each change with a record of who made it. */
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

  /** The same, on behalf of somebody else. */
  as(actor: Actor): Accounts {
    return new Accounts({ ...this.#options, actor });
  }

  /** Makes an organization without credits. Throws OperatorError for a name or a limit that is not allowed. */
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

  /** Changes an organization; undefined where there is none. Throws OperatorError for what is not allowed. */
  async changeOrganization(id: string, change: OrganizationChange): Promise<OrganizationRow | undefined> {
    if (change.name !== undefined) checkName(change.name);
    checkLimits(change.limits ?? null);
    const old = await this.#rows.organization(id);
    if (old === undefined) return undefined;
    const changed = { ...old, ...change };
    const named = ({ name, status, limits, keepsConversations }: OrganizationRow) => {
      return { name, status, limits, keepsConversations };
    };
    const record = { action: "organization.change", organizationId: id, subjectId: id };
    await this.#rows.updateOrganization(
      changed,
      this.#record({ ...record, before: named(old), after: named(changed) }),
    );
    return changed;
  }

  organization(id: string): Promise<OrganizationRow | undefined> {
    return this.#rows.organization(id);
  }

  /** All organizations, the oldest first. */
  organizations(): Promise<OrganizationRow[]> {
    return allPages((page) => this.#rows.organizations(page));
  }

  /** Makes a token. Throws OperatorError for a name, a scope, a model or a limit that is not allowed. */
  async createToken(draft: TokenDraft): Promise<CreateTokenOutcome> {
    checkName(draft.name);
    const scopes = draft.scopes === null ? [...DEFAULT_SCOPES] : checkScopes(draft.scopes);
    checkLimits(draft.limits);
    const nowMs = this.#clock();
    if (draft.expiresAtMs !== null && draft.expiresAtMs <= nowMs) {
      throw new OperatorError(`expiry: found ${isoTime(draft.expiresAtMs)}; allowed: a time to come`);
    }
    if ((await this.#rows.organization(draft.organizationId)) === undefined) return { outcome: "unknown_organization" };
    const made = this.#newToken({ ...draft, scopes, createdAtMs: nowMs });
    const after = { ...termsOf(made.row), cap: draft.cap === null ? null : formatCredits(draft.cap) };
    await this.#rows.insertToken(made.row, draft.cap, this.#record(changeOf("token.create", made.row, { after })));
    return { outcome: "created", ...made };
  }

  /** All tokens of an organization (null: of every one), the oldest first. */
  tokens(organizationId: string | null): Promise<TokenWithBudget[]> {
    return allPages((page) => this.#rows.tokens({ ...page, organizationId }));
  }

  /** Ends a token now. Repeated, it tells the first time's revocation. */
  async revokeToken(id: string): Promise<RevokeOutcome> {
    const old = await this.#rows.token(id);
    if (old === undefined) return { outcome: "unknown_token" };
    if (old.revokedAtMs !== null) return { outcome: "revoked", row: old, repeated: true };
    const record = this.#record(changeOf("token.revoke", old, { before: termsOf(old) }));
    const revoked = await this.#rows.revokeToken(id, this.#clock(), record);
    return { outcome: "revoked", row: (await this.#rows.token(id)) ?? old, repeated: !revoked };
  }

  /**
   * Makes a token with the name, rights and length of life of another, which ends after `overlapMs` (or at its own
   * expiry, if that comes first), so that its users can change over without an interruption.
   */
  async rotateToken(id: string, overlapMs: number): Promise<RotateOutcome> {
    const old = await this.#rows.token(id);
    if (old === undefined) return { outcome: "unknown_token" };
    const nowMs = this.#clock();
    if (old.revokedAtMs !== null || (old.expiresAtMs !== null && old.expiresAtMs <= nowMs)) {
      return { outcome: "ended", row: old };
    }
    const lifeMs = old.expiresAtMs === null ? null : old.expiresAtMs - old.createdAtMs;
    const made = this.#newToken({
      ...old,
      createdAtMs: nowMs,
      expiresAtMs: lifeMs === null ? null : nowMs + lifeMs,
    });
    const oldExpiresAtMs = Math.min(old.expiresAtMs ?? Number.POSITIVE_INFINITY, nowMs + overlapMs);
    const after = { successor: made.row.id, expiresAt: isoTime(oldExpiresAtMs) };
    const record = this.#record(changeOf("token.rotate", old, { before: termsOf(old), after }));
    await this.#rows.replaceToken(id, oldExpiresAtMs, made.row, record);
    return { outcome: "rotated", predecessor: { ...old, expiresAtMs: oldExpiresAtMs }, ...made };
  }

  #record(change: Change) {
    return auditRow(this.#options.actor, change, this.#options);
  }

  #newToken(from: Omit<TokenRow, "id" | "hash" | "prefix" | "revokedAtMs" | "lastUsedAtMs">): NewToken {
    const { token, hash, prefix } = makeToken(this.#random);
    const { organizationId, name, scopes, models, limits, createdAtMs, expiresAtMs } = from;
    const id = makeId("tok", this.#random);
    const terms = { scopes, models, limits, createdAtMs, expiresAtMs, revokedAtMs: null, lastUsedAtMs: null };
    return { token, row: { id, organizationId, name, hash, prefix, ...terms } };
  }
}

function changeOf(action: string, token: TokenRow, rest: Pick<Change, "before" | "after">): Change {
  return { action, organizationId: token.organizationId, subjectId: token.id, ...rest };
}

/** What an audit tells of a token: no secret, and no hash of one. */
function termsOf({ name, prefix, scopes, models, limits, expiresAtMs }: TokenRow): Record<string, unknown> {
  return { name, prefix, scopes, models, limits, expiresAt: expiresAtMs === null ? null : isoTime(expiresAtMs) };
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
  throw new OperatorError(
    `name: found ${shortText(name)}; allowed: 1 to 200 characters on one line, one of them not a space`,
  );
}

function checkScopes(scopes: string[]): Scope[] {
  for (const scope of scopes) {
    if (!(SCOPES as readonly string[]).includes(scope)) {
      throw new OperatorError(`scope: found ${shortText(scope)}; allowed: ${SCOPES.join(", ")}`);
    }
  }
  return SCOPES.filter((scope) => scopes.includes(scope));
}

function checkLimits(limits: Partial<LimitSettings> | null): void {
  for (const [name, value] of Object.entries(limits ?? {})) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new OperatorError(`${name}: found ${value}; allowed: an integer, 1 or more`);
    }
  }
}

function shortText(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

function isoTime(timeMs: number): string {
  return new Date(timeMs).toISOString();
}
