import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { AnswerMemory } from "../../src/gateway/answer-memory.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { AnswerRoom, Provider } from "../../src/providers/provider.ts";
import { requestOf, settingsOf } from "../support/wire.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted-server.ts";

const MIB = 1024 * 1024;
const SLOW = { timeout: 180_000 };

let upstream: ScriptedServer;

beforeAll(async () => {
  upstream = await startScriptedServer();
});
afterAll(() => upstream.end());
beforeEach(() => upstream.reset());

const usageMetadata = { promptTokenCount: 4, candidatesTokenCount: 2, totalTokenCount: 6 };
const said = (text: string) => {
  const candidates = [{ content: { role: "model", parts: [{ text }] }, finishReason: "STOP" }];
  return { body: JSON.stringify({ candidates, usageMetadata }) };
};
/** More than 1 MiB of text. */
const vectors = (count: number) => {
  const values = Array.from({ length: 3_072 }, () => 0.123_456_789_012_345);
  return { body: JSON.stringify({ embeddings: Array.from({ length: count }, () => ({ values })) }) };
};

interface Kind {
  answer: () => { body: string };
  /** Bytes that an answer may have at most while it is read. */
  readBytes: number;
  ask: (provider: Provider, room: AnswerRoom) => Promise<unknown>;
}

const inTurn = async <Result>(work: () => Result) => work();
const KINDS: Record<string, Kind> = {
  completion: {
    answer: () => said("a".repeat(2 * MIB)),
    readBytes: 16 * MIB,
    ask: async (provider, room) => {
      const { chunks } = await provider.complete({
        request: requestOf({ stream: false }),
        signal: AbortSignal.any([]),
        room,
      });
      let length = 0;
      for await (const chunk of chunks) for (const { delta } of chunk) length += delta?.content?.length ?? 0;
      return length;
    },
  },
  embedding: {
    answer: () => vectors(60),
    // Four calls run at once.
    readBytes: 64 * MIB,
    ask: async (provider, room) => {
      const inputs = Array.from({ length: 60 }, () => "a");
      const model = "gemini-embedding-001";
      const request = { model, inputs, encoding: "float" as const };
      const signal = AbortSignal.any([]);
      const answer = await provider.tasks?.embedding?.({ model, request, signal, inTurn, room });
      for await (const [piece] of answer?.chunks ?? []) return piece?.vectors?.length;
      return undefined;
    },
  },
};

test.each(Object.entries(KINDS))(
  "A long %s of a package's provider waits for those of its organization, and for no others.",
  SLOW,
  async (_name, { answer, readBytes, ask }) => {
    const provider = createProvider(settingsOf(`${upstream.origin}/v1beta`, { kind: "google", apiKey: "k" }), {});
    // A quarter, the share of an organization, is one answer that is read.
    const memory = new AnswerMemory(4 * readBytes);
    const releases: (() => void)[] = [];
    const roomOf = (owner: string) => memory.roomFor(owner, (release) => releases.push(release));
    upstream.answer(answer(), answer(), answer());
    const first = await ask(provider, roomOf("one"));
    let isSecondRead = false;
    const second = ask(provider, roomOf("one")).then((read) => {
      isSecondRead = true;
      return read;
    });
    await expect.poll(() => releases.length, { timeout: 60_000 }).toBe(2);
    expect(await ask(provider, roomOf("two"))).toBe(first);
    expect(isSecondRead).toBe(false);
    releases[0]?.();
    expect(await second).toBe(first);
    await provider.close();
  },
);

test("A short answer of a package's provider needs no room.", SLOW, async () => {
  const provider = createProvider(settingsOf(`${upstream.origin}/v1beta`, { kind: "google", apiKey: "k" }), {});
  const room = new AnswerMemory(0).roomFor("one", () => {
    throw new Error("Room was reserved");
  });
  upstream.answer(said("short"));
  expect(await KINDS.completion?.ask(provider, room)).toBe("short".length);
  await provider.close();
});
