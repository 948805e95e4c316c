import type { Grant } from "../api/admin/credits.ts";
import type { Identity, OpenSession, Operator } from "../api/admin/operator.ts";
import type { Organization } from "../api/admin/organization.ts";
import type { Token } from "../api/admin/token.ts";
import { type TokenBoundSettings, toLimits } from "../api/principal.ts";
import { DAY_MS, dayStart, HOUR_MS } from "../api/time.ts";
import { creditsFromMicro, creditsOf } from "../credits/amount.ts";
import type { GrantRow } from "../credits/books.ts";
import { invalidCursor } from "../errors.ts";
import type { OperatorRow, SessionRow } from "../stores/queries/admin.ts";
import type {
  ListedOrganization,
  ListedSession,
  ListedToken,
  OrganizationSearch,
  TokenSearch,
} from "../stores/queries/directory.ts";
import type { IdentityRow } from "../stores/queries/identities.ts";
import type { Store } from "../stores/store.ts";
import { entityOf } from "./entity.ts";
import { hashOfSession, idOfPerson, idOfSession, SESSION_IDLE_MS } from "./token.ts";

/** Position and length of a page. */
export interface PageRequest {
  /** `next_cursor` of the page before. */
  cursor: string | null;
  limit: number;
}

/** A page as the API answers it. */
export interface Page<Entry> {
  object: "list";
  data: Entry[];
  next_cursor: string | null;
}

export type Directory = ReturnType<typeof directoryOver>;

/** Lists organizations, tokens, grants, operators and sessions for the admin API, the newest first. Throws ApiError for an invalid cursor. */
export function directoryOver({ rows, clock }: { rows: Store["directory"]; clock: () => number }) {
  return {
    async organizations(search: Pick<OrganizationSearch, "search" | "externalId" | "status"> & PageRequest) {
      const { cursor, limit, ...filter } = search;
      const nowMs = clock();
      const page = { ...filter, id: null, spentIn: paceDays(nowMs), before: positionOf(cursor), limit: limit + 1 };
      const toEntry = (row: ListedOrganization) => toOrganization(row, nowMs);
      return pageOf(await rows.organizations(page), limit, toEntry, ({ organization }) => cursorFor(organization));
    },
    async organization(id: string): Promise<Organization | undefined> {
      const nowMs = clock();
      const filter = { id, search: null, status: null, before: null, limit: 1 };
      const [row] = await rows.organizations({ ...filter, spentIn: paceDays(nowMs) });
      return row && toOrganization(row, nowMs);
    },
    async tokens(search: Omit<TokenSearch, "id" | "nowMs" | "before"> & PageRequest) {
      const { cursor, limit, ...filter } = search;
      const nowMs = clock();
      const page = { ...filter, id: null, nowMs, before: positionOf(cursor), limit: limit + 1 };
      const toEntry = (row: ListedToken) => toToken(row, nowMs);
      return pageOf(await rows.tokens(page), limit, toEntry, ({ token }) => cursorFor(token));
    },
    async token(id: string): Promise<Token | undefined> {
      const nowMs = clock();
      const filter = { id, organizationId: null, createdBy: null, search: null, status: null };
      const [row] = await rows.tokens({ ...filter, before: null, limit: 1, nowMs });
      return row && toToken(row, nowMs);
    },
    async grants({ organizationId, cursor, limit }: { organizationId: string } & PageRequest): Promise<Page<Grant>> {
      const found = await rows.grants({ organizationId, before: positionOf(cursor), limit: limit + 1 });
      return pageOf(found, limit, toGrant, cursorFor);
    },
    /** Returns grants with this reference or id, with their organizations: of one organization, or of all (null). */
    async grantsNamed(name: string, organizationId: string | null, limit: number) {
      const found = await rows.grantsNamed(name, organizationId, limit);
      return found.map(({ grant, organizationName }) => ({ ...toGrant(grant), organization_name: organizationName }));
    },
    async operators({ cursor, limit }: PageRequest): Promise<Page<Operator>> {
      const found = await rows.operators({ before: positionOf(cursor), limit: limit + 1 });
      return pageOf(found, limit, toOperator, cursorFor);
    },
    async sessions({ cursor, limit }: PageRequest): Promise<Page<OpenSession>> {
      const position = positionOf(cursor);
      const before = position && { createdAtMs: position.createdAtMs, hash: hashOfSession(position.id) };
      const nowMs = clock();
      const found = await rows.sessions({ before, nowMs, seenAfterMs: nowMs - SESSION_IDLE_MS, limit: limit + 1 });
      return pageOf(found, limit, toOpenSession, ({ session }) =>
        cursorFor({ createdAtMs: session.createdAtMs, id: idOfSession(session) }),
      );
    },
  };
}

const PACE_DAYS = 7;
const POSITION = /^(\d{1,16})_(.{1,200})$/s;

export function positionOf(cursor: string | null): { createdAtMs: number; id: string } | null {
  if (cursor === null) return null;
  const [, createdAt, id] = POSITION.exec(cursor) ?? [];
  if (createdAt === undefined || id === undefined) throw invalidCursor();
  return { createdAtMs: Number(createdAt), id };
}

/** Returns a cursor that is the id of an entry, with the prefix of its kind. Throws ApiError for any other text. */
export function idCursor(cursor: string | null, kind: string): string | null {
  if (cursor !== null && !new RegExp(`^${kind}_[0-9a-z]+$`).test(cursor)) throw invalidCursor();
  return cursor;
}

/** Builds a page from up to one row more than it holds; that row shows that there is another page. */
export function pageOf<Row, Entry>(
  rows: Row[],
  limit: number,
  toEntry: (row: Row) => Entry,
  cursorOf: (row: Row) => string,
): Page<Entry> {
  const shown = rows.slice(0, limit);
  const last = rows.length > limit ? shown.at(-1) : undefined;
  return { object: "list", data: shown.map(toEntry), next_cursor: last === undefined ? null : cursorOf(last) };
}

export function cursorFor({ createdAtMs, id }: { createdAtMs: number; id: string }): string {
  return `${createdAtMs}_${id}`;
}

/** Returns the days before today whose charges tell how long credits last. */
function paceDays(nowMs: number): { fromDay: number; toDay: number } {
  const toDay = dayStart(nowMs);
  return { fromDay: toDay - PACE_DAYS * DAY_MS, toDay };
}

const NO_OWN_TOKENS: TokenBoundSettings = { countMax: 0, models: null, capMax: null, daysMax: null };

function toOrganization(row: ListedOrganization, nowMs: number): Organization {
  const { organization, balance } = row;
  const { limits, tokenBounds, ...fields } = organization;
  const bounds = tokenBounds ?? NO_OWN_TOKENS;
  return {
    ...entityOf("organization", fields),
    limits: toLimits(limits),
    token_bounds: {
      ...{ max_count: bounds.countMax, models: bounds.models, max_cap: bounds.capMax, max_days: bounds.daysMax },
    },
    credits: creditsOf(balance),
    days_left: daysLeft(row, nowMs),
    credit_warnings: balance.warnAt?.map(creditsFromMicro) ?? null,
  };
}

/** Returns the days until credits are spent at the rate of the last days, or since a later creation; null if none were. */
function daysLeft({ organization, balance, charged }: ListedOrganization, nowMs: number): number | null {
  const { fromDay, toDay } = paceDays(nowMs);
  const isNew = organization.createdAtMs >= fromDay;
  const spent = isNew ? balance.spent : charged;
  const inMs = isNew ? Math.max(HOUR_MS, nowMs - organization.createdAtMs) : toDay - fromDay;
  return spent <= 0n ? null : (creditsFromMicro(balance.available) / creditsFromMicro(spent)) * (inMs / DAY_MS);
}

function toToken({ token, organizationName }: ListedToken, nowMs: number): Token {
  const { hash: _hash, rotatedBy: _rotatedBy, budget, limits, ...fields } = token;
  return {
    ...entityOf("token", { ...fields, organizationName }),
    ...{ limits: toLimits(limits), status: statusOf(token, nowMs) },
    cap: budget && {
      amount: creditsFromMicro(budget.cap),
      spent: creditsFromMicro(budget.spent),
      held: creditsFromMicro(budget.held),
    },
  };
}

function toGrant(row: GrantRow): Grant {
  return entityOf("grant", row);
}

export function toOperator({ hash: _hash, ...row }: OperatorRow): Operator {
  return { ...entityOf("operator", row), status: row.revokedAtMs === null ? "active" : "revoked" };
}

export function toIdentity(row: IdentityRow): Identity {
  return { ...entityOf("identity", row), status: row.blockedAtMs === null ? "active" : "blocked" };
}

function toOpenSession({ session, role, holderName: name, organizationId }: ListedSession): OpenSession {
  const { createdAtMs, seenAtMs: lastSeenAtMs, expiresAtMs } = session;
  const [id, holder] = [idOfSession(session), { id: holderIdOf(session), name }];
  return entityOf("open_session", { id, role, holder, organizationId, createdAtMs, lastSeenAtMs, expiresAtMs });
}

/** Returns the id of the operator, token or person of a session. */
export function holderIdOf({ operatorId, tokenId, person }: SessionRow): string {
  return operatorId ?? tokenId ?? (person === null ? "" : idOfPerson(person));
}

function statusOf({ revokedAtMs, expiresAtMs }: ListedToken["token"], nowMs: number): Token["status"] {
  if (revokedAtMs !== null) return "revoked";
  return expiresAtMs !== null && expiresAtMs <= nowMs ? "expired" : "active";
}
