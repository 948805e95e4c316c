import type { JsonObject } from "../../api/json.ts";
import type { AuditRow } from "../../credits/audit.ts";
import { IDENTITY, ISSUER_KEYS } from "../admin-schema.ts";
import type { Database, IdPage } from "../database.ts";
import { TOKEN } from "../schema.ts";
import { allOf, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import type { TokenRow } from "./accounts.ts";
import { recordOf } from "./admin.ts";

/** A person or a caller whom an issuer identifies. */
export type IdentityRow = RowOf<typeof IDENTITY>;

/** Identities, and the public keys of their issuers. */
export function identityRows({ find, findRow, findRows, now, write, writeIf }: Database) {
  const inserted = (row: IdentityRow) => sql`${IDENTITY.insert(row)} on conflict (id) do nothing`;
  return {
    identity: (id: string) => findRow(IDENTITY)`select * from identity where id = ${id}`,
    identities: ({ after, limit, status }: IdPage & { status: "active" | "blocked" | null }) => {
      const wanted = allOf(
        sql`id > ${after ?? ""}`,
        status === "blocked" && sql`blocked_at is not null`,
        status === "active" && sql`blocked_at is null`,
      );
      return findRows(IDENTITY)`select * from identity where ${wanted} order by id limit ${limit}`;
    },
    async insertIdentity(row: IdentityRow) {
      await write([inserted(row)]);
    },
    /** Writes the token that stands for an identity in an organization, and the identity. Returns false if the token exists. */
    insertIdentityToken(identity: IdentityRow, token: TokenRow, audit: AuditRow): Promise<boolean> {
      const first = sql`${TOKEN.insert(token)} on conflict do nothing`;
      return writeIf([first], [inserted(identity), ...recordOf(audit, { token: [token] })]);
    },
    /** Blocks an identity, also an unseen one, and the tokens that it created. Returns false if it is blocked already. */
    async blockIdentity(row: IdentityRow, atMs: number, audit: AuditRow): Promise<boolean> {
      await write([inserted(row)]);
      const blocked = sql`update identity set blocked_at = ${atMs} where id = ${row.id} and blocked_at is null`;
      return writeIf([blocked], recordOf(audit));
    },
    /** Returns false if the identity is not blocked; then nothing is written. */
    unblockIdentity(id: string, audit: AuditRow): Promise<boolean> {
      const unblocked = sql`update identity set blocked_at = null where id = ${id} and blocked_at is not null`;
      return writeIf([unblocked], recordOf(audit));
    },
    /** Returns the keys of an issuer, with the time since they were read from it, by the store's clock. */
    async issuerKeys(issuer: string) {
      const [row] = await find(sql`select *, ${now()} - fetched_at as age from issuer_keys where issuer = ${issuer}`);
      return row && { keys: ISSUER_KEYS.fromRecord(row).keys, ageMs: Number(row.age) };
    },
    /** Returns true if no node has asked the issuer for its keys for this time; then this one may. */
    async claimIssuerKeys(issuer: string, gapMs: number): Promise<boolean> {
      const [changed] = await write([
        sql`
          insert into issuer_keys (issuer, keys, fetched_at, asked_at) values (${issuer}, '[]', 0, ${now()})
          on conflict (issuer) do update set asked_at = ${now()} where issuer_keys.asked_at <= ${now()} - ${gapMs}`,
      ]);
      return changed === 1;
    },
    async storeIssuerKeys(issuer: string, keys: readonly JsonObject[]) {
      await write([
        sql`update issuer_keys set keys = ${JSON.stringify(keys)}, fetched_at = ${now()} where issuer = ${issuer}`,
      ]);
    },
  };
}
