import { type Static, Type } from "typebox";
import { VOUCHERS_MAX } from "../principal.ts";
import { IntegerOf, OptionalKeys, TextOf } from "../schema.ts";
import { Amount, Entity, Id, Name, Nullable, PositiveAmount, Strict, Time } from "./common.ts";

export const VoucherBatch = Entity("voucher_batch", {
  id: Id,
  name: Type.String(),
  count: IntegerOf("Vouchers of the batch."),
  amount: Amount,
  priority: IntegerOf("Priority of the grants."),
  credit_days: Nullable(IntegerOf("Days after its redemption in which the credits of a voucher can be spent.")),
  expires_at: Nullable(Time),
  redeemed: IntegerOf("Vouchers that were redeemed."),
  expired: IntegerOf("Vouchers that expired before they were redeemed."),
  revoked: IntegerOf("Vouchers that were revoked before they were redeemed."),
  created_at: Time,
  revoked_at: Nullable(Time),
});
export type VoucherBatch = Static<typeof VoucherBatch>;
export const VoucherBatchWithCodes = Type.Object({
  ...VoucherBatch.properties,
  codes: Type.Array(Type.String(), { description: "The code of each voucher." }),
});
export const NewVoucherBatch = Strict({
  name: Name,
  count: Type.Integer({ minimum: 1, maximum: VOUCHERS_MAX, description: "Number of vouchers." }),
  amount: { ...PositiveAmount, description: "Credits of each voucher, with at most 6 decimals." },
  ...OptionalKeys({
    expires_at: Nullable(Time, { description: "Expiry of the vouchers; null: never." }),
    credit_days: Nullable(
      Type.Integer({
        ...{ minimum: 1, maximum: 3_650 },
        description: "Days after its redemption in which the credits of a voucher can be spent; null: without end.",
      }),
    ),
    priority: Type.Integer({
      ...{ minimum: 0, maximum: 1_000, default: 0 },
      description: "Priority of the grants; those with a lower priority are spent first.",
    }),
  }),
});

export const Voucher = Entity("voucher", {
  id: Id,
  batch_id: Id,
  prefix: TextOf("First characters of its code."),
  status: Type.Enum(["active", "redeemed", "expired", "revoked"]),
  organization_id: Nullable(Id, { description: "The organization that has redeemed it." }),
  redeemed_at: Nullable(Time),
});
export type Voucher = Static<typeof Voucher>;

export const Redemption = Strict({
  code: Type.String({
    ...{ minLength: 1, maxLength: 100 },
    description: "Code of a voucher. Upper and lower case, spaces and dashes make no difference.",
  }),
});
