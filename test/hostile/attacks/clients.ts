import assert from "node:assert/strict";
import { type Attack, assertRefused, authorization, post } from "./attack.ts";

const COMPLETIONS = "/v1/chat/completions";
const MESSAGES = [{ role: "user", content: "hello" }];

/** Requests of misconfigured and demanding clients. */
export const clientAttacks: readonly Attack[] = [
  {
    title: "Every path of the API without /v1 is answered with 404, which names the right base URL, for every method.",
    needs: "nothing",
    async play({ url }) {
      for (const path of [
        "/models",
        "/models/a/b",
        "/chat/completions",
        "/usage",
        "/responses",
        "/embeddings",
        "/messages",
      ]) {
        for (const method of ["GET", "POST", "DELETE", "OPTIONS"]) {
          const answer = await fetch(`${url}${path}`, { method, headers: { accept: "application/json" } });
          const message = await assertRefused(answer, 404, "not_found");
          assert.match(message, /set the base URL to .*\/v1\.$/);
        }
      }
    },
  },
  {
    title: "A path with a trailing or a repeated slash is answered as the path without.",
    needs: "nothing",
    async play({ url }) {
      for (const path of ["/v1/models/", "//v1//models", "/v1/models/?any=1", "/v1/usage//"]) {
        await assertRefused(await fetch(`${url}${path}`), 401, "missing_token");
      }
      await assertRefused(await fetch(`${url}/v1//chat/completions/`), 405, "method_not_allowed");
    },
  },
  {
    title: "A max_tokens that the setting does not allow is refused with the bound that holds.",
    needs: "token",
    async play(target) {
      const body = { model: "sandbox/echo", messages: MESSAGES, max_tokens: 2 ** 40 };
      const answer = await post(target, COMPLETIONS, body, authorization(target, "token"));
      assert.match(await assertRefused(answer, 400, "invalid_value"), /at most \d+/);
    },
  },
];
