import { type Attack, assertRefused, authorization, post } from "./attack.ts";

const COMPLETIONS = "/v1/chat/completions";
const MEBIBYTE = 1024 * 1024;

/** Attacks with the size and the shape of request bodies. */
export const bodyAttacks: readonly Attack[] = [
  {
    title: "A body sent with an invalid token is refused for its token, however large it is.",
    needs: "nothing",
    async play(target) {
      const answer = await post(target, COMPLETIONS, Buffer.alloc(MEBIBYTE, "["), { authorization: "Bearer none" });
      await assertRefused(answer, 401, "invalid_token");
    },
  },
  {
    title: "A body above the configured limit is refused.",
    needs: "token",
    async play(target) {
      const answer = await post(target, COMPLETIONS, Buffer.alloc(64 * MEBIBYTE, " "), authorization(target, "token"));
      await assertRefused(answer, 413, "body_too_large");
    },
  },
];
