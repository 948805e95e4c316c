import { SCOPES, type Scope } from "../contract/scope.ts";
import type { MicroCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import type { AccountRows, LimitSettings, OrganizationRow, TokenRow, TokenWithBudget } from "../stores/store.ts";
import { makeId, makeToken, type RandomBytes } from "./token.ts";

export interface AccountsOptions {
  rows: AccountRows;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
}

export interface TokenDraft {
  organizationId: string;
  name: string;
  /** Null: all that the organization may do. */
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

const PAGE_ROWS = 500;
const NAME = /^(?=.*\S)[^\p{Cc}\p{Zl}\p{Zp}]{1,200}$/u;

/** Organizations and tokens: made, found, rotated and revoked. */
export class Accounts {
  readonly #rows: AccountRows;
  readonly #clock: () => number;
  readonly #random: RandomBytes;

  constructor({ rows, clock, random }: AccountsOptions) {
    this.#rows = rows;
    this.#clock = clock;
    this.#random = random;
  }

  /** Makes an organization without credits. Throws OperatorError for a name that is not allowed. */
  async createOrganization(name: string): Promise<OrganizationRow> {
    checkName(name);
    const row: OrganizationRow = {
      id: makeId("org", this.#random),
      name,
      kind: "standard",
      createdAtMs: this.#clock(),
    };
    await this.#rows.insertOrganization(row);
    return row;
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
    const scopes = draft.scopes === null ? [...SCOPES] : checkScopes(draft.scopes);
    checkLimits(draft.limits);
    const nowMs = this.#clock();
    if (draft.expiresAtMs !== null && draft.expiresAtMs <= nowMs) {
      throw new OperatorError(`expiry: found ${isoTime(draft.expiresAtMs)}; allowed: a time to come`);
    }
    if ((await this.#rows.organization(draft.organizationId)) === undefined) return { outcome: "unknown_organization" };
    const made = this.#newToken({ ...draft, scopes, createdAtMs: nowMs });
    await this.#rows.insertToken(made.row, draft.cap);
    return { outcome: "created", ...made };
  }

  /** All tokens of an organization (null: of every one), the oldest first. */
  tokens(organizationId: string | null): Promise<TokenWithBudget[]> {
    return allPages((page) => this.#rows.tokens({ ...page, organizationId }));
  }

  /** Ends a token now. Repeated, it tells the first time's revocation. */
  async revokeToken(id: string): Promise<RevokeOutcome> {
    const revoked = await this.#rows.revokeToken(id, this.#clock());
    const row = await this.#rows.token(id);
    return row === undefined ? { outcome: "unknown_token" } : { outcome: "revoked", row, repeated: !revoked };
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
    await this.#rows.replaceToken(id, oldExpiresAtMs, made.row);
    return { outcome: "rotated", predecessor: { ...old, expiresAtMs: oldExpiresAtMs }, ...made };
  }

  #newToken(from: Omit<TokenRow, "id" | "hash" | "prefix" | "revokedAtMs">): NewToken {
    const { token, hash, prefix } = makeToken(this.#random);
    const { organizationId, name, scopes, models, limits, createdAtMs, expiresAtMs } = from;
    const id = makeId("tok", this.#random);
    const terms = { scopes, models, limits, createdAtMs, expiresAtMs, revokedAtMs: null };
    return { token, row: { id, organizationId, name, hash, prefix, ...terms } };
  }
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
