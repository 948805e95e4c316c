import type { AuditRow } from "../../credits/audit.ts";
import {
  ADMIN_KEY,
  ADMIN_SESSION,
  AUDIT_ENTRY,
  OPERATOR,
  SHORT_TOKEN,
  type WrittenRows,
  withChecksum,
} from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { allOf, equal, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";

/** A person with a token, whose role covers the whole service. */
export type OperatorRow = RowOf<typeof OPERATOR>;
/** A session of the console: of an operator, of a member by a token of an organization, or of a person at an identity provider. */
export type SessionRow = RowOf<typeof ADMIN_SESSION>;
export type Person = NonNullable<SessionRow["person"]>;
/** Represents a token until it expires, with that token's rights and limits but no other scope than `SHORT_TOKEN_SCOPES`. */
export type ShortTokenRow = RowOf<typeof SHORT_TOKEN>;

type AdminKey = RowOf<typeof ADMIN_KEY>;
/** Names a request of an administrator that carries an Idempotency-Key. */
export type AdminKeyName = Pick<AdminKey, "scope" | "key">;
export type AdminKeyClaim = AdminKeyName & Pick<AdminKey, "fingerprint"> & { keepMs: number };

export interface AuditFilter {
  organizationId: string | null;
  action: string | null;
  /** Id, name or kind of the actor. */
  actor?: string | null;
  subjectId?: string | null;
  fromMs?: number | null;
  /** Exclusive. */
  toMs?: number | null;
}

interface AuditPage extends AuditFilter {
  /** Only entries with a greater id. */
  after?: string;
  /** Id of the last entry seen. */
  before: string | null;
  limit: number;
}

/** A fixed id, so that the key refuses a second process that creates a first operator. */
const FIRST_OPERATOR_ID = "adm_first";

/** The same value as in the index of the migration. */
const FAILED_SIGN_IN = "session.sign_in_failed";

/** Operators, their sessions, the audit log and the idempotency keys of the admin API. */
export function adminRows(database: Database) {
  return { ...operators(database), ...sessions(database), ...auditEntries(database), ...adminKeys(database) };
}

/** Locks the oldest operator, so that changes of operators see each other: one of two waits for the other. */
const TAKE_TURN = sql`update operator set name = name where id = (select id from operator order by created_at, id limit 1)`;

function operators({ find, findRow, write, writeIf }: Database) {
  return {
    /** Writes the first operator of a store, under a fixed id. Returns false if the store has one. */
    async insertFirstOperator(operator: OperatorRow, audit?: AuditRow): Promise<boolean> {
      if ((await find(sql`select id from operator limit 1`)).length > 0) return false;
      const first = sql`${OPERATOR.insert({ ...operator, id: FIRST_OPERATOR_ID })} on conflict do nothing`;
      return writeIf([first], recordOf(audit && { ...audit, subjectId: FIRST_OPERATOR_ID }));
    },
    /** Writes an operator and revokes all others at its creation time. */
    replaceOperators: (operator: OperatorRow, audit: AuditRow) =>
      write([
        TAKE_TURN,
        sql`update operator set revoked_at = ${operator.createdAtMs} where revoked_at is null`,
        OPERATOR.insert(operator),
        ...recordOf(audit),
      ]),
    operatorByHash: (hash: Uint8Array) => findRow(OPERATOR)`select * from operator where hash = ${hash}`,
    operator: (id: string) => findRow(OPERATOR)`select * from operator where id = ${id}`,
    /** Writes an operator. Returns false, and writes nothing, if the name is in use, or the operator who creates it was revoked. */
    async insertOperator(operator: OperatorRow, audit: AuditRow): Promise<boolean> {
      const { actorId } = audit;
      const isValid = sql`update operator set name = name where id = ${actorId} and revoked_at is null`;
      const inserted = sql`${OPERATOR.insert(operator)} on conflict do nothing`;
      const required = actorId === null ? [inserted] : [TAKE_TURN, isValid, inserted];
      return writeIf(required, recordOf(audit));
    },
    /** Revokes an operator. Returns false if they are revoked already; then nothing is written. */
    async revokeOperator(id: string, atMs: number, audit: AuditRow): Promise<boolean> {
      const revocation = sql`update operator set revoked_at = ${atMs} where id = ${id} and revoked_at is null`;
      return writeIf([revocation], recordOf(audit));
    },
  };
}

function sessions({ findRow, write, writeIf }: Database) {
  return {
    insertSession: (session: SessionRow, audit?: AuditRow) =>
      write([
        sql`delete from admin_session where expires_at < ${session.createdAtMs}`,
        ADMIN_SESSION.insert(session),
        ...recordOf(audit),
      ]),
    session: (hash: Uint8Array) => findRow(ADMIN_SESSION)`select * from admin_session where hash = ${hash}`,
    touchSession: (hash: Uint8Array, seenAtMs: number) =>
      write([sql`update admin_session set seen_at = ${seenAtMs} where hash = ${hash}`]),
    /** Removes a session. Returns false if it does not exist; then nothing is written. */
    deleteSession: (hash: Uint8Array, audit?: AuditRow) =>
      writeIf([sql`delete from admin_session where hash = ${hash}`], recordOf(audit)),
    insertShortToken: (token: ShortTokenRow, nowMs: number, audit?: AuditRow) =>
      write([sql`delete from short_token where expires_at < ${nowMs}`, SHORT_TOKEN.insert(token), ...recordOf(audit)]),
  };
}

function auditEntries({ findRows, write }: Database) {
  return {
    /** Writes a `session.sign_in_failed` record and removes all but the newest `keep` of them. */
    async insertFailedSignIn(entry: AuditRow, keep: number) {
      await write([
        ...recordOf({ ...entry, action: FAILED_SIGN_IN }),
        sql`
          delete from audit_entry where action = ${FAILED_SIGN_IN} and id <= (
            select id from audit_entry where action = ${FAILED_SIGN_IN} order by id desc limit 1 offset ${keep})`,
      ]);
    },
    insertAudit: (entry: AuditRow) => write(recordOf(entry)),
    /** Returns audit records, the newest first. */
    async audit({ organizationId, action, subjectId = null, after, before, limit, ...rest }: AuditPage) {
      const { actor = null, fromMs = null, toMs = null } = rest;
      const wanted = allOf(
        equal({ organization_id: organizationId, action, subject_id: subjectId }),
        actor !== null && sql`(actor_id = ${actor} or actor_name = ${actor} or actor_kind = ${actor.toLowerCase()})`,
        fromMs !== null && sql`made_at >= ${fromMs}`,
        toMs !== null && sql`made_at < ${toMs}`,
        after !== undefined && sql`id > ${after}`,
        before !== null && sql`id < ${before}`,
      );
      const found = await findRows(AUDIT_ENTRY)`
        select * from audit_entry where ${wanted} order by id desc limit ${limit}`;
      return found.map(({ rows: _, checksum: __, ...audit }) => audit);
    },
  };
}

function adminKeys({ find, now, write }: Database) {
  const named = ({ scope, key }: AdminKeyName) => equal({ scope, key });
  return {
    /** Claims a key durably. Returns false if it is claimed and has not expired. */
    async claimAdminKey({ scope, key, fingerprint, keepMs }: AdminKeyClaim): Promise<boolean> {
      const [changed] = await write([
        sql`
          insert into admin_idempotency_key (scope, key, fingerprint, state, created_at, expires_at)
          values (${scope}, ${key}, ${fingerprint}, 'running', ${now()}, ${now()} + ${keepMs})
          on conflict (scope, key) do update set fingerprint = excluded.fingerprint, state = 'running',
            status = null, answer = null, created_at = excluded.created_at, expires_at = excluded.expires_at
          where admin_idempotency_key.expires_at <= ${now()}`,
      ]);
      return changed === 1;
    },
    /** Returns a key with the time since its claim, by the store's clock. */
    async adminKey(name: AdminKeyName) {
      const [row] = await find(sql`
        select *, ${now()} - created_at as age from admin_idempotency_key where ${named(name)}`);
      return row && { ...ADMIN_KEY.fromRecord(row), ageMs: Number(row.age) };
    },
    /** Stores an HTTP status and JSON text, which holds no secret. */
    answerAdminKey(name: AdminKeyName, status: number, answer: string) {
      const answered = ADMIN_KEY.set({ state: "answered", status, answer });
      return write([sql`update admin_idempotency_key set ${answered} where ${named(name)}`]);
    },
    interruptAdminKey: (name: AdminKeyName) =>
      write([sql`update admin_idempotency_key set state = 'interrupted' where ${named(name)}`]),
    freeAdminKey: (name: AdminKeyName) => write([sql`delete from admin_idempotency_key where ${named(name)}`]),
  };
}

/** Returns the insert of an audit record, if there is one, which belongs in the transaction that writes these rows. */
export function recordOf(audit: AuditRow | undefined, rows: WrittenRows | null = null): Sql[] {
  return audit === undefined ? [] : [AUDIT_ENTRY.insert(withChecksum({ ...audit, rows }))];
}
