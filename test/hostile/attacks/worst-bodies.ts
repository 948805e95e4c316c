import assert from "node:assert/strict";
import { WORST_BODIES, type WorstBody } from "../worst-bodies.ts";
import { type Attack, authorization, type Needs, post, type Target } from "./attack.ts";

/** Sends all worst bodies that need this credential, and asserts that each is answered in time. */
async function playAll(target: Target, needs: Needs): Promise<void> {
  const credentials = needs === "nothing" ? {} : authorization(target, needs);
  for (const body of WORST_BODIES.filter((one) => one.needs === needs)) {
    const bytes = Buffer.from(body.text("sandbox/echo"));
    const answer = await post(target, body.path, bytes, { ...credentials, ...body.headers });
    assertBounded(body, answer.status, await answer.text());
  }
}

function assertBounded({ name, exceeds }: WorstBody, status: number, text: string): void {
  const shown = `${name}: ${status} ${text.slice(0, 200)}`;
  // Previous attacks may have exhausted the sign-in attempts of the address and the organization's tokens per minute.
  if (exceeds !== undefined) assert.ok(status === 413 || status === 429, shown);
  else assert.ok(status < 500 && status !== 413, shown);
}

/** Attacks with bodies that are expensive in themselves. How long they take is measured by `npm run bench:bodies`. */
export const worstBodyAttacks: readonly Attack[] = [
  {
    title: "Each of the worst bodies of a caller who is not signed in is refused.",
    needs: "nothing",
    play: (target) => playAll(target, "nothing"),
  },
  {
    title: "Each of the worst bodies of a caller is refused for the bound that it exceeds, or answered.",
    needs: "token",
    play: (target) => playAll(target, "token"),
  },
  {
    title: "Each of the worst bodies of an administrator is refused.",
    needs: "admin token",
    play: (target) => playAll(target, "admin token"),
  },
];
