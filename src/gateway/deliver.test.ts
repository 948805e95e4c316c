import { expect, test } from "vitest";
import type { Admission } from "./admit.ts";
import type { AnswerSink } from "./answer.ts";
import type { Answered } from "./attempt.ts";
import { deliver, toolCallCompleter } from "./deliver.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import type { Plan } from "./plan.ts";

test("Half a million tool calls get ids that are unique, each in a time that does not grow with their number.", () => {
  const complete = toolCallCompleter("01a1fc9f-afa2-71b3-8203-c2d4d7bab152");
  const count = 500_000;
  const ids = new Set<string | undefined>();
  for (let index = 0; index < count; index += 1) {
    // Every other upstream id repeats the one before.
    const [piece] = complete([{ delta: { tool_calls: [{ index, id: `call_of_${index - (index % 2)}` }] } }]);
    ids.add(piece?.delta?.tool_calls?.[0]?.id);
  }
  expect(ids.size).toBe(count);
}, 180_000);

/** Delivers audio of so many pieces of 64 KiB. Returns what is kept of it. */
async function keptOfSpeech(pieces: number, idempotency: object | null, keepsConversations: boolean) {
  const limit = { unit: "requests", limit: 1, remaining: 1, resetSeconds: 60, windowSeconds: 60 };
  const chunks = (async function* () {
    for (let piece = 0; piece < pieces; piece += 1) yield [{ delta: { audio: { data: "a".repeat(65_536) } } }];
    yield [{ finish_reason: "stop" as const }];
  })();
  const call = {
    ...{ kind: "speech", idempotency, ignored: [], signal: new AbortController().signal },
    principal: { organizationId: "org", keepsConversations },
  };
  const admission = {
    ...{ facts: { holdId: "hold", organizationId: "org" }, lease: { require: () => {}, ready: () => {} } },
    ...{ maxTokens: 1, estimate: { choices: 1, likely: 1 }, admittedAtMs: 0, available: 0n },
    ...{ requestLimit: limit, tokenLimit: limit },
  };
  const { fold } = await deliver(
    { clock: () => 0, ledger: { checkpoint: () => {} } } as unknown as Gateway,
    call as unknown as GatewayCall,
    { model: { id: "m" }, ignored: [] } as unknown as Plan,
    admission as unknown as Admission,
    {
      ...{ route: { providerId: "up", model: "m" }, circuit: { completed: () => {} }, answer: { chunks } },
    } as unknown as Answered,
    { open: () => {}, push: () => {}, streams: true } as unknown as AnswerSink,
  );
  return fold;
}

test.each([
  ["is kept under an idempotency key if it is short", 2, {}, false, true],
  ["is not kept if it is too long to store", 20, {}, false, false],
  ["is not kept without a key, even where conversations are", 2, null, true, false],
])("Speech %s.", async (_what, pieces, key, keepsConversations, isKept) => {
  expect((await keptOfSpeech(pieces, key, keepsConversations)) !== undefined).toBe(isKept);
});
