import assert from "node:assert/strict";
import { type Attack, assertRefused, authorization, post } from "./attack.ts";

const FAILED_SIGN_INS_PER_MINUTE_MAX = 10;

/** Attacks that exhaust a limit of the attacker's address. They run last: the limit remains exhausted for a minute. */
export const limitAttacks: readonly Attack[] = [
  {
    title: "Wrong tokens from an address are refused without a record after ten, and never lock the right one out.",
    needs: "admin token",
    async play(target) {
      const adminToken = authorization(target, "admin token").authorization.slice("Bearer ".length);
      const signIn = (token: string) => post(target, "/admin/v1/session", { token }, { "x-tollgate-console": "1" });
      for (let count = 0; count < FAILED_SIGN_INS_PER_MINUTE_MAX; count += 1) await signIn("none");
      await assertRefused(await signIn("none"), 429, "rate_limit_exceeded");
      const answer = await signIn(adminToken);
      assert.equal(answer.status, 200, "The admin token was refused because of another caller's failures.");
    },
  },
];
