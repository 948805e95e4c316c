import { text as textOf } from "node:stream/consumers";
import { auditRow } from "../admin/audit.ts";
import { idCursor, pageOf, positionOf } from "../admin/directory.ts";
import { hashOfCode, makeCode, makeId } from "../admin/token.ts";
import type { Voucher, VoucherBatch } from "../api/admin/voucher.ts";
import { VOUCHERS_MAX } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { VoucherBatchRow, VoucherRow } from "../credits/books.ts";
import { ApiError } from "../errors.ts";
import { csvRow } from "../reports/csv.ts";
import { argument, credits, facts, futureDate, integer, optional, required, text, toggle } from "./command.ts";
import { type Core, checkName, closedOrganization, found, rowRecord, unknownOrganization } from "./core.ts";
import { bookingJson, bookingOf, bookingText, requireCredits } from "./credits.ts";
import { amountOf, futureTimeOf, sharedOperation } from "./operation.ts";

export const listVoucherBatches = sharedOperation({
  route: "GET /voucher-batches",
  permission: "vouchers:read",
  summary: "List batches of vouchers, the newest first, without their codes",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.VoucherBatch) },
  async handle({ vouchers, clock }, { page: { cursor, limit } }) {
    const rows = await vouchers.batches({ before: positionOf(cursor), limit: limit + 1 });
    return pageOf(rows, limit, batchAt(clock()), ({ createdAtMs, id }) => `${createdAtMs}_${id}`);
  },
  commands: (make) => [
    make.list({
      usage: "voucher list",
      flags: {},
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        CREDITS: ({ amount }) => amount,
        VOUCHERS: ({ count }) => count,
        REDEEMED: ({ redeemed }) => redeemed,
        EXPIRED: ({ expired }) => expired,
        REVOKED: ({ revoked }) => revoked,
        EXPIRES: ({ expires_at }) => expires_at ?? "never",
      },
    }),
  ],
});

function batchAt(nowMs: number) {
  return (row: VoucherBatchRow & { redeemed: number }): VoucherBatch => {
    const { id, name, count, priority, redeemed, revokedAtMs } = row;
    const unused = count - redeemed;
    const expired = revokedAtMs === null && isExpired(row, nowMs) ? unused : 0;
    return {
      ...{ object: "voucher_batch", id, name, count, amount: creditsFromMicro(row.amount), priority },
      ...{ credit_days: row.creditDays, expires_at: isoTime(row.expiresAtMs) },
      ...{ redeemed, expired, revoked: revokedAtMs === null ? 0 : unused },
      ...{ created_at: isoTime(row.createdAtMs), revoked_at: isoTime(revokedAtMs) },
    };
  };
}

function isExpired({ expiresAtMs }: VoucherBatchRow, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}

export const createVoucherBatch = sharedOperation({
  route: "POST /voucher-batches",
  permission: "vouchers:write",
  summary: "Create a batch of vouchers; only this response contains their codes",
  body: (s) => s.NewVoucherBatch,
  answer: {
    status: 201,
    description: "The batch with its codes.",
    schema: (s) => s.VoucherBatchWithCodes,
    secret: {
      field: "codes",
      hint: ({ id }) =>
        `The codes of ${id} were in the first response and are not stored. If they are lost, revoke ${id} and create another batch.`,
    },
  },
  async handle(core, { body: { name, count, amount, expires_at, credit_days: creditDays = null, priority = 0 } }) {
    checkName(name);
    const id = makeId("batch", core.random);
    const createdAtMs = core.clock();
    const terms = { amount: amountOf("amount", amount), priority, creditDays, createdAtMs, revokedAtMs: null };
    const batch = { id, name, count, ...terms, expiresAtMs: futureTimeOf(core, "expires_at", expires_at) };
    const made = Array.from({ length: count }, () => ({ ...makeCode(core.random), id: makeId("vou", core.random) }));
    const unused = { batchId: id, isRevoked: false, organizationId: null, redeemedAtMs: null };
    const rows = made.map(({ code: _, ...row }) => ({ ...row, ...unused }));
    const answer = batchAt(createdAtMs)({ ...batch, redeemed: 0 });
    const after = { name, count, amount, priority, credit_days: creditDays, expires_at: answer.expires_at };
    await core.vouchers.insert(batch, rows, rowRecord(core, "voucher.create", { organizationId: null, id }, { after }));
    return { ...answer, codes: made.map(({ code }) => code) };
  },
  commands: (make) => [
    make.command({
      usage: "voucher create <credits>",
      summary: "Create vouchers of so many credits each; their codes are shown once",
      flags: {
        amount: argument("<credits>", credits),
        name: required("--name <name>", "name of the batch"),
        count: optional(
          "--count <number>",
          `number of vouchers, at most ${VOUCHERS_MAX} (default: 1)`,
          integer(1, VOUCHERS_MAX),
        ),
        expires_at: optional("--expires <date>", "expiry of the vouchers (default: never)", futureDate),
        credit_days: optional(
          "--credit-days <days>",
          "days after its redemption in which the credits of a voucher can be spent (default: without end)",
          integer(1, 3_650),
        ),
        csv: toggle("--csv", "print comma-separated values"),
      },
      call: ({ csv: _, name, count, ...body }) => ({ body: { ...body, name, count: count ?? 1 } }),
      text(batch, { csv }) {
        const { id, name, amount, expires_at, codes } = batch;
        const lines = codes.map((code) => [code, String(amount), expires_at ?? "", name]);
        if (csv) return [["code", "credits", "expires_at", "batch"], ...lines].map(csvRow).join("\n");
        return [facts({ id, name, credits: amount, expires: expires_at ?? "never" }), "", ...codes].join("\n");
      },
    }),
  ],
});

const batchOf = ({ vouchers }: Core, id: string) =>
  found(vouchers.batch(id), { kind: "voucher batch", id, listedBy: "voucher list" });

export const listVouchers = sharedOperation({
  route: "GET /voucher-batches/:id/vouchers",
  permission: "vouchers:read",
  summary: "List the vouchers of a batch with their states, without their codes",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Voucher) },
  async handle(core, { params: { id }, page: { cursor, limit } }) {
    const after = idCursor(cursor, "vou");
    const batch = await batchOf(core, id);
    const rows = await core.vouchers.list(id, { after, limit: limit + 1 });
    const statusOfUnused = isExpired(batch, core.clock()) ? "expired" : "active";
    const toVoucher = ({ id: voucherId, prefix, isRevoked, organizationId, redeemedAtMs }: VoucherRow): Voucher => ({
      ...{ object: "voucher", id: voucherId, batch_id: id, prefix, organization_id: organizationId },
      status: organizationId !== null ? "redeemed" : isRevoked ? "revoked" : statusOfUnused,
      redeemed_at: isoTime(redeemedAtMs),
    });
    return pageOf(rows, limit, toVoucher, (row) => row.id);
  },
  commands: (make) => [
    make.list({
      usage: "voucher show <batch>",
      flags: { id: argument("<batch>", text) },
      columns: {
        ID: ({ id }) => id,
        CODE: ({ prefix }) => `${prefix}…`,
        STATUS: ({ status }) => status,
        ORGANIZATION: ({ organization_id }) => organization_id,
        REDEEMED: ({ redeemed_at }) => redeemed_at,
      },
    }),
  ],
});

export const revokeVoucherBatch = sharedOperation({
  route: "POST /voucher-batches/:id/revoke",
  permission: "vouchers:write",
  summary: "Revoke the vouchers of a batch that are not redeemed; a repetition changes nothing",
  answer: { status: 200, description: "The batch as it is now.", schema: (s) => s.VoucherBatch },
  async handle(core, { params: { id } }) {
    const { name } = await batchOf(core, id);
    const record = rowRecord(core, "voucher.revoke", { organizationId: null, id }, { before: { name } });
    await core.vouchers.revoke(id, core.clock(), record);
    return batchAt(core.clock())(await batchOf(core, id));
  },
  commands: (make) => [
    make.command({
      usage: "voucher revoke <batch>",
      flags: { id: argument("<batch>", text) },
      text: ({ id, name, redeemed, revoked }) => facts({ id, name, redeemed, revoked }),
    }),
  ],
});

export const redeemVoucher = sharedOperation({
  route: "POST /organizations/:id/redemptions",
  permission: "credits:buy",
  requestsAMinute: 10,
  summary: "Redeem a voucher: its credits are granted once; a repetition by the same organization is ignored",
  body: (s) => s.Redemption,
  answer: { status: 201, description: "The grant.", schema: (s) => s.Booking },
  async handle(core, { params: { id: organizationId }, body: { code } }) {
    await requireCredits(core, organizationId);
    const hash = hashOfCode(code);
    const voucher = hash && (await core.vouchers.byHash(hash));
    if (voucher === undefined) {
      const message = "Invalid 'code': there is no such voucher. Check it for typing mistakes.";
      throw new ApiError("invalid_value", message, { param: "code" });
    }
    const { voucherId, batchId, ...terms } = voucher;
    const after = { voucher_id: voucherId, batch_id: batchId };
    const subject = { action: "voucher.redeem", organizationId, subjectId: null };
    const outcome = await core.book({
      ...{ kind: "redeem", organizationId, voucherId, ...terms },
      audit: { ...auditRow(core.actor, subject, core), after },
    });
    if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
    if (outcome.outcome === "granted") return bookingOf({ ...outcome, id: outcome.grantId, amount: terms.amount });
    if (outcome.reason === "closed") throw closedOrganization(organizationId);
    throw new ApiError("voucher_ended", ENDED[outcome.reason], { param: "code" });
  },
  commands: (make) => [
    make.command({
      usage: "voucher redeem <code>",
      summary: "Redeem a voucher for an organization; the code - is read from standard input",
      flags: {
        code: argument("<code>", text),
        id: required("--org <id>", "organization that gets the credits"),
      },
      call: async ({ id, code }) => ({
        params: { id },
        body: { code: code === "-" ? (await textOf(process.stdin)).trim() : code },
      }),
      json: (booking) => bookingJson(booking, {}),
      text: (booking) => bookingText(booking, "granted"),
    }),
  ],
});

const ENDED = {
  redeemed: "The voucher was already redeemed.",
  revoked: "The voucher was revoked.",
  expired: "The voucher has expired.",
};
