import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Attack,
  assertRefused,
  firstRouteOf,
  makeCustomer,
  operate,
  post,
  required,
  type Target,
} from "./attack.ts";

const ATTACK_MS = 5_000;

/** Asks the fragile model as the holder of a token. */
function ask(target: Target, token: string, content: string): Promise<Response> {
  const body = { model: required(target, "fragileModel"), messages: [{ role: "user", content }], max_tokens: 64 };
  return post(target, "/v1/chat/completions", body, { authorization: `Bearer ${token}` });
}

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.arrayBuffer();
  return answer.status;
}

/** Attacks of a caller on the trust between the service and a provider. The victim is another organization. */
export const upstreamAttacks: readonly Attack[] = [
  {
    title: "A caller that makes a provider fail ten times a second closes its model to nobody else.",
    needs: "token",
    alsoNeeds: ["adminToken", "fragileModel"],
    async play(target) {
      const { token: attacker } = await makeCustomer(target);
      const { token: victim } = await makeCustomer(target);
      const fail = () => statusOf(ask(target, attacker, "status 500"));
      const failed = await Promise.all(Array.from({ length: 10 }, fail));
      const served: Promise<number>[] = [];
      const endsAtMs = performance.now() + ATTACK_MS;
      const failing: Promise<number>[] = [];
      while (performance.now() < endsAtMs) {
        failing.push(fail(), fail());
        served.push(statusOf(ask(target, victim, "hello")));
        await sleep(200);
      }
      for (const status of [...failed, ...(await Promise.all(failing))]) assert.equal(status, 502);
      const refused = (await Promise.all(served)).filter((status) => status !== 200);
      assert.deepEqual(refused, [], `${refused.length} of ${served.length} requests of the victim were refused.`);
    },
  },
  {
    title: "A pause of three years that a provider asks for lasts a minute at most, and the operator can end it.",
    needs: "token",
    alsoNeeds: ["adminToken", "fragileModel"],
    async play(target) {
      // A customer with an open circuit would be told its last failure instead of being asked to wait for the pause.
      const { token: attacker } = await makeCustomer(target);
      const { token: victim } = await makeCustomer(target);
      await assertRefused(await ask(target, attacker, "status 429 retry-after 99999999"), 503, "overloaded");
      const refused = await ask(target, victim, "hello");
      assert.ok(Number(refused.headers.get("retry-after")) <= 60, `Retry-After: ${refused.headers.get("retry-after")}`);
      await assertRefused(refused, 503, "overloaded");
      const { route, pausedUntil } = await firstRouteOf(target, required(target, "fragileModel"));
      const pauseMs = Date.parse(pausedUntil ?? "") - Date.now();
      assert.ok(pauseMs > 0 && pauseMs <= 60_000, `The pause lasts ${pauseMs} ms.`);
      await operate(target, "POST", "/routes/resume", { route });
      assert.equal(await statusOf(ask(target, victim, "hello")), 200);
    },
  },
];
