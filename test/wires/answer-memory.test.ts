import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { AnswerMemory } from "../../src/gateway/answer-memory.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { AnswerRoom, Provider } from "../../src/providers/provider.ts";
import { requestOf, settingsOf } from "../support/wire.ts";
import { TEXT } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer, TYPES } from "./scripted-server.ts";

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

/** Reads a streamed answer, and passes on its text. */
async function readText(
  provider: Provider,
  model: string,
  { room, signal = AbortSignal.any([]) }: { room: AnswerRoom; signal?: AbortSignal },
  onText: (text: string) => void,
): Promise<void> {
  const request = { ...requestOf({ stream: true }), model };
  const { chunks } = await provider.complete({ request, signal, room });
  for await (const chunk of chunks) for (const { delta } of chunk) onText(delta?.content ?? "");
}

test.each(FIXTURES)(
  "A streamed event of 2 MiB on the wire of $kind is passed on, and takes room until then.",
  SLOW,
  async (fixture) => {
    const { kind, basePath, settings, model } = fixture;
    const provider = createProvider(settingsOf(`${upstream.origin}${basePath}`, { kind, ...settings }), {});
    const long = "a".repeat(2 * MIB);
    const events: unknown[] = JSON.parse(JSON.stringify(fixture.text.events).replace("Hello", `${long}Hello`));
    const begun = events.slice(0, events.findIndex((event) => JSON.stringify(event).includes(long)) + 1);
    upstream.answer(scripted(fixture, { ...fixture.text, events }, true), {
      ...scripted({ ...fixture, end: "" }, { ...fixture.text, events: begun }, true),
      ending: "hold",
    });
    let text = "";
    const add = (piece: string) => {
      text += piece;
    };
    // The share of an organization is one event.
    const memory = new AnswerMemory(64 * MIB);
    let reserved = 0;
    const room = memory.roomFor("one", (release) => {
      reserved += 1;
      release();
    });
    await readText(provider, model, { room }, add);
    expect([text.length, text.slice(2 * MIB), reserved]).toEqual([2 * MIB + TEXT.length, TEXT, 1]);
    text = "";
    const leaving = new AbortController();
    const held = memory.roomFor("one", () => {
      reserved += 1;
    });
    const reading = readText(provider, model, { room: held, signal: leaving.signal }, add);
    await expect.poll(() => text.length, { timeout: 60_000 }).toBeGreaterThan(2 * MIB);
    expect(reserved).toBe(2);
    // The stream goes on, but the room of its event is free.
    await memory.roomFor("one", () => {}).reserve(16 * MIB);
    leaving.abort();
    await expect(reading).rejects.toThrow();
    await provider.close();
  },
);

test.each(["openai-compatible", "google"])(
  "An event above the limit of an answer on the wire of %s ends the stream with the reason.",
  SLOW,
  async (kind) => {
    const provider = createProvider(settingsOf(`${upstream.origin}/v1`, { kind, apiKey: "k" }), {});
    const headers = { "content-type": TYPES.data };
    upstream.answer({ headers, body: `data: {"a":"${"a".repeat(17 * MIB)}` });
    const room = new AnswerMemory(64 * MIB).roomFor("one", () => {});
    await expect(readText(provider, "m", { room }, () => {})).rejects.toMatchObject({
      failure: "malformed",
      publicReason: expect.stringMatching(/^The model's .* (more|longer) than 16777216 (characters|bytes)\.$/),
    });
    await provider.close();
  },
);
