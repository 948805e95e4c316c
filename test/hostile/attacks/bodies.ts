import assert from "node:assert/strict";
import { exchangeRaw, type RawAnswer } from "../raw-http.ts";
import { type Attack, assertRefused, authorization, post, type Target } from "./attack.ts";

const COMPLETIONS = "/v1/chat/completions";
const SIGN_IN = "/admin/v1/session";
const MEBIBYTE = 1024 * 1024;
/** Headers that a browser sends from the console's own pages. */
const CONSOLE = { "x-tollgate-console": "1" };

/** Sends the head of a chunked request and one chunk of its body, never the end, and waits for the answer. */
async function sendUnfinished(
  target: Target,
  path: string,
  headers: Record<string, string>,
  piece: string,
): Promise<RawAnswer> {
  const fields = { host: "x", "content-type": "application/json", "transfer-encoding": "chunked", ...headers };
  const head = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  const chunk = `${piece.length.toString(16)}\r\n${piece}\r\n`;
  const [answer] = await exchangeRaw(target.url, `POST ${path} HTTP/1.1\r\n${head.join("")}\r\n${chunk}`);
  assert.ok(answer !== undefined, "The connection was closed without an answer.");
  return answer;
}

function assertTooLarge({ status, body }: RawAnswer): void {
  assert.equal(status, 413, body);
  assert.equal((JSON.parse(body) as { error: { code: string } }).error.code, "body_too_large");
}

/** Beginnings of bodies that are expensive to parse, with the bound that they exceed. */
const EXPENSIVE = {
  depth: `{"messages":${"[".repeat(128)}`,
  values: `{"messages":[${"1,".repeat(100_000)}`,
};

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
    title: "A body of a caller who is not signed in is refused above 16 KiB, before it has arrived.",
    needs: "nothing",
    async play(target) {
      for (const path of [SIGN_IN, "/admin/v1/playground/token"]) {
        const piece = `{"token":"${"a".repeat(16 * 1024)}`;
        assertTooLarge(await sendUnfinished(target, path, CONSOLE, piece));
      }
    },
  },
  {
    title: "A sign-in with nested JSON is refused at its 129th level, before it has arrived.",
    needs: "nothing",
    async play(target) {
      assertTooLarge(await sendUnfinished(target, SIGN_IN, CONSOLE, EXPENSIVE.depth));
    },
  },
  {
    title: "An administrator's body is refused above 1 MiB.",
    needs: "admin token",
    async play(target) {
      const body = { name: "a".repeat(MEBIBYTE) };
      const answer = await post(target, "/admin/v1/organizations", body, authorization(target, "admin token"));
      await assertRefused(answer, 413, "body_too_large");
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
  {
    title: "A caller's body with more than 128 levels or 100,000 values is refused before it has arrived.",
    needs: "token",
    async play(target) {
      for (const piece of Object.values(EXPENSIVE)) {
        assertTooLarge(await sendUnfinished(target, COMPLETIONS, authorization(target, "token"), piece));
      }
    },
  },
  {
    title: "A request with more than 10,000 messages or 1,024 tools is refused.",
    needs: "token",
    async play(target) {
      const hello = { role: "user", content: "hello" };
      const tool = { type: "function", function: { name: "f" } };
      const messages = Array(10_001).fill(hello);
      const tools = Array(1_025).fill(tool);
      for (const excess of [{ messages }, { messages: [hello], tools }]) {
        const body = { model: "sandbox/echo", ...excess };
        await assertRefused(
          await post(target, COMPLETIONS, body, authorization(target, "token")),
          413,
          "body_too_large",
        );
      }
    },
  },
];
