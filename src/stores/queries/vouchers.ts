import type { AuditRow } from "../../credits/audit.ts";
import type { VoucherBatchRow, VoucherRow } from "../../credits/books.ts";
import { VOUCHER, VOUCHER_BATCH } from "../admin-schema.ts";
import { type Database, type IdPage, listsOf } from "../database.ts";
import { allOf, type Sql, sql } from "../sql.ts";
import { recordOf } from "./admin.ts";

/** Vouchers in one statement: each takes several of the parameters that a database allows. */
const INSERTED_AT_ONCE = 100;

interface BatchPage {
  /** The last batch seen. */
  before: { createdAtMs: number; id: string } | null;
  limit: number;
}

/** Vouchers. The books redeem them, see `book-writes.ts`. */
export function voucherRows({ find, read, readRows, write, writeIf }: Database) {
  const batchesOf = async (condition: Sql, limit: number) => {
    const rows = await read<{ redeemed: bigint }>(sql`
      select *, (
        select count(*) from voucher where batch_id = voucher_batch.id and organization_id is not null) as redeemed
      from voucher_batch where ${condition} order by created_at desc, id desc limit ${limit}`);
    return rows.map((row) => ({ ...VOUCHER_BATCH.fromRecord(row), redeemed: Number(row.redeemed) }));
  };
  return {
    insert: (batch: VoucherBatchRow, vouchers: readonly VoucherRow[], audit: AuditRow) =>
      write([
        VOUCHER_BATCH.insert(batch),
        ...listsOf(vouchers, INSERTED_AT_ONCE).map((rows) => VOUCHER.insert(...rows)),
        ...recordOf(audit, { voucher_batch: [batch] }),
      ]),
    /** Returns the ids of a voucher and its batch, and the terms of its grant, by the hash of its code. */
    async byHash(hash: Uint8Array) {
      const [row] = await find(sql`
        select voucher.id as voucher_id, voucher_batch.* from voucher
        join voucher_batch on voucher_batch.id = voucher.batch_id where hash = ${hash}`);
      if (row === undefined) return undefined;
      const { id: batchId, amount, priority, creditDays, expiresAtMs } = VOUCHER_BATCH.fromRecord(row);
      return { voucherId: String(row.voucher_id), batchId, amount, priority, creditDays, expiresAtMs };
    },
    batch: async (id: string) => (await batchesOf(sql`id = ${id}`, 1))[0],
    /** Returns batches with the number of their vouchers that were redeemed, the newest first. */
    batches: ({ before, limit }: BatchPage) =>
      batchesOf(allOf(before !== null && sql`(created_at, id) < (${before.createdAtMs}, ${before.id})`), limit),
    /** Returns vouchers of a batch, in the order of their ids. */
    list: (batchId: string, { after, limit }: IdPage) =>
      readRows(VOUCHER)`
        select * from voucher where batch_id = ${batchId} and id > ${after ?? ""} order by id limit ${limit}`,
    /** Revokes the vouchers of a batch that are not redeemed. Returns false if it was revoked before; then nothing is written. */
    revoke: (id: string, atMs: number, audit: AuditRow) =>
      writeIf(
        [sql`update voucher_batch set revoked_at = ${atMs} where id = ${id} and revoked_at is null`],
        [
          sql`update voucher set is_revoked = 1 where batch_id = ${id} and organization_id is null`,
          ...recordOf(audit, { voucher_batch: [{ id, revokedAtMs: atMs }] }),
        ],
      ),
  };
}
