import assert from "node:assert/strict";
import { exchangeRaw } from "../raw-http.ts";
import type { Attack } from "./attack.ts";

const SIGN_INS_A_MINUTE = 10;

/** Attacks that exhaust a limit of the attacker's address. They run last: the limit remains exhausted for a minute. */
export const limitAttacks: readonly Attack[] = [
  {
    title: "Attempts to sign in are counted before their bodies are read.",
    needs: "nothing",
    async play({ url }) {
      const fields = ["host: x", "x-tollgate-console: 1", "content-type: application/json"];
      const whole = `{"token":"none"}`;
      const attempt = (length: number, body: string) =>
        exchangeRaw(
          url,
          `POST /admin/v1/session HTTP/1.1\r\n${fields.join("\r\n")}\r\ncontent-length: ${length}\r\n\r\n${body}`,
        );
      for (let count = 0; count < SIGN_INS_A_MINUTE; count += 1) await attempt(whole.length, whole);
      const [answer] = await attempt(1_000, "");
      assert.equal(answer?.status, 429, "An attempt above the limit was not refused before its body arrived.");
    },
  },
];
