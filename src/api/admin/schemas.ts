/** Every schema of the admin API, for the declarations of its operations. */
export { Type } from "typebox";
export * from "./budget.ts";
export * from "./common.ts";
export * from "./credits.ts";
export * from "./operator.ts";
export * from "./organization.ts";
export * from "./payment.ts";
export * from "./receiver.ts";
export * from "./reports.ts";
export * from "./request.ts";
export * from "./session.ts";
export * from "./token.ts";
export * from "./voucher.ts";
