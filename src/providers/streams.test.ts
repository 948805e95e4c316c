import type { Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { served } from "../../test/support/patience.ts";
import {
  CHUNKED_HEAD,
  chunked,
  DONE,
  event,
  finish,
  head,
  hear,
  hearBytes,
  LAST_CHUNK,
  requestOf,
  STREAM_HEAD,
  settingsOf,
  startWire,
  usage,
  type Wire,
  word,
} from "../../test/support/wire.ts";
import { EVENT_LENGTH_MAX } from "./http/event-stream.ts";
import { createProvider } from "./index.ts";
import type { Provider } from "./provider.ts";

const COUNTED = { prompt_tokens: 2, completion_tokens: 1 };

describe("The end of a stream:", () => {
  test.each([
    ["[DONE]", word("a") + finish() + DONE],
    ["[DONE] twice", word("a") + finish() + DONE + DONE],
    ["[DONE], and then more", word("a") + finish() + DONE + word("b")],
    ["[DONE], and then an invalid event", `${word("a")}${finish()}${DONE}data: {\n\n`],
    ["no [DONE]", word("a") + finish()],
    ["[DONE] without the empty line after it", `${word("a")}${finish()}data: [DONE]\n`],
  ])("the answer is complete with %s.", async (_name, body) => {
    const heard = await hearBytes(STREAM_HEAD + body);
    expect(heard).toMatchObject({ text: "a", error: undefined });
    expect(heard.chunks.at(-1)?.finish_reason).toBe("stop");
    const inChunks = await hearBytes(CHUNKED_HEAD + chunked(body) + LAST_CHUNK);
    expect(inChunks).toMatchObject({ text: "a", error: undefined });
  });

  test.each([
    ["nothing at all", "", ""],
    ["no finish reason", word("a"), "a"],
    ["[DONE] early", word("a") + DONE, "a"],
    ["an event cut off", `${word("a")}data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, "a"],
    ["a finish reason that says so", word("a") + finish("error") + DONE, "a"],
  ])("the answer breaks off with %s.", async (_name, body, text) => {
    const heard = await hearBytes(STREAM_HEAD + body);
    expect(heard).toMatchObject({ text, error: { failure: "failed" } });
  });

  test("usage is read after the finish reason and with it.", async () => {
    const after = await hearBytes(STREAM_HEAD + word("a") + finish() + usage(COUNTED) + DONE);
    expect(after.chunks.at(-1)).toEqual({ usage: COUNTED });
    const choices = [{ index: 0, delta: {}, finish_reason: "length" }];
    const beside = await hearBytes(STREAM_HEAD + word("a") + event({ choices, usage: COUNTED, model: "m" }) + DONE);
    expect(beside.chunks.at(-1)).toEqual({ delta: {}, finish_reason: "length", usage: COUNTED });
  });

  test("data after [DONE] is not awaited.", async () => {
    const wire = await startWire((socket) => void socket.write(CHUNKED_HEAD + chunked(word("a") + finish() + DONE)));
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    expect(await hear(provider)).toMatchObject({ text: "a", error: undefined });
    await wire.closed();
    await provider.close();
    await wire.end();
  });
});

describe("A stream in pieces:", () => {
  const body = `\uFEFF: hello\r\n\r\n${word("é€😀")}data: {"choices":\r\ndata: [{"delta": {"content": "!"}}]}\r\r${finish()}${DONE}`;

  test("one byte at a time is read.", async () => {
    const bytes = Buffer.from(STREAM_HEAD + body);
    const heard = await hearBytes(async (socket) => {
      for (const byte of bytes) {
        socket.write(Uint8Array.of(byte));
        await new Promise((resolve) => setImmediate(resolve));
      }
      socket.end();
    });
    expect(heard).toMatchObject({ text: "é€😀!", error: undefined });
  });

  test("one byte per chunk in one read is read.", async () => {
    const bytes = Buffer.from(body);
    const pieces = [...bytes].map((byte) => Buffer.from([0x31, 13, 10, byte, 13, 10]));
    const heard = await hearBytes(Buffer.concat([Buffer.from(CHUNKED_HEAD), ...pieces, Buffer.from(LAST_CHUNK)]));
    expect(heard).toMatchObject({ text: "é€😀!", error: undefined });
  });

  test("many events of one read are returned in one item.", async () => {
    const words = Array.from({ length: 100 }, () => word("a")).join("");
    const heard = await hearBytes(CHUNKED_HEAD + chunked(words) + chunked(finish() + DONE) + LAST_CHUNK);
    expect(heard.chunks).toHaveLength(101);
    expect(heard.items).toBeLessThan(5);
  });

  test.each([
    ["then the end", finish() + DONE, undefined],
    ["then an event that is too long", `data: ${"x".repeat(300_000)}\n\n`, { failure: "malformed" }],
  ])(
    "very many small events of one read are returned in several items, complete and in order: %s.",
    async (_name, end, error) => {
      const words = Array.from({ length: 5_000 }, (_, index) => `${index} `);
      const heard = await hearBytes(STREAM_HEAD + words.map((text) => word(text)).join("") + end);
      expect(heard.text).toBe(words.join(""));
      if (error === undefined) expect(heard.error).toBeUndefined();
      else expect(heard.error).toMatchObject(error);
      // 128 of them at the most.
      expect(heard.items).toBeGreaterThanOrEqual(Math.ceil(5_000 / 128));
    },
  );

  test("a million empty events between two words are ignored.", async () => {
    const empty = `${"\n".repeat(500_000)}${"data:\n\n".repeat(250_000)}${": \n\n".repeat(250_000)}`;
    expect(await hearBytes(STREAM_HEAD + word("a") + empty + word("b") + finish() + DONE)).toMatchObject({
      text: "ab",
      error: undefined,
    });
  });

  test("invalid UTF-8 is replaced.", async () => {
    const [before = "", after = ""] = word("?").split("?");
    const bytes = [STREAM_HEAD, before, Buffer.of(0xff, 0xc3), after, finish(), DONE].map((part) => Buffer.from(part));
    expect(await hearBytes(Buffer.concat(bytes))).toMatchObject({ text: "\uFFFD\uFFFD", error: undefined });
  });
});

describe("A malformed stream:", () => {
  test.each([
    ["truncated JSON", 'data: {"choices": [\n\n'],
    ["a word", "data: hello\n\n"],
    ["a number", "data: 5\n\n"],
    ["a list", "data: []\n\n"],
    ["NaN in the usage", 'data: {"choices": [], "usage": {"prompt_tokens": NaN}}\n\n'],
  ])("the chunks before the failure are returned: %s.", async (_name, body) => {
    const heard = await hearBytes(STREAM_HEAD + word("a") + body + word("b") + finish() + DONE);
    expect(heard).toMatchObject({ text: "a", error: { failure: "malformed" } });
  });

  test("an event of 64 MiB is refused early, and its connection is closed.", async () => {
    let written = 0;
    const wire = await startWire((socket) => {
      const piece = "x".repeat(64 * 1024);
      const write = (failure?: Error | null) => {
        if (failure || socket.destroyed || written >= 64 * 1024 * 1024) return;
        written += piece.length;
        socket.write(piece, write);
      };
      socket.write(`${STREAM_HEAD}${word("a")}data: `, write);
    });
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    expect(await hear(provider)).toMatchObject({ text: "a", error: { failure: "malformed" } });
    await wire.closed();
    expect(written).toBeLessThan(EVENT_LENGTH_MAX + 16 * 1024 * 1024);
    await provider.close();
    await wire.end();
  });

  test("an event without choices and usage has only the fields that are passed on.", async () => {
    const heard = await hearBytes(
      STREAM_HEAD + event({}) + event({ choices: [], prompt_filter_results: [] }) + finish() + DONE,
    );
    expect(heard.chunks).toEqual([{ whole: { prompt_filter_results: [] } }, { delta: {}, finish_reason: "stop" }]);
  });
});

describe("Ending an answer early:", () => {
  const CLOSES_WITHIN_MS = 500;

  async function withWire(answer: (socket: Socket) => void, run: (provider: Provider, wire: Wire) => Promise<void>) {
    const wire = await startWire(answer);
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    await run(provider, wire);
    await provider.close();
    await wire.end();
  }
  const closesInTime = async (wire: Wire) => {
    const late = served(CLOSES_WITHIN_MS).then(() => "late");
    expect(await Promise.race([wire.closed().then(() => "closed"), late])).toBe("closed");
  };
  const until = async (condition: () => boolean) => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
  };

  test.each([true, false])("an abort before the headers closes the connection (streamed: %s).", async (stream) => {
    await withWire(
      () => {},
      async (provider, wire) => {
        const leaving = new AbortController();
        const heard = hear(provider, { stream }, leaving.signal);
        await until(() => wire.requests.length === 1);
        leaving.abort(new Error("left"));
        expect((await heard).error).toEqual(new Error("left"));
        await closesInTime(wire);
      },
    );
  });

  test("an abort in the middle of a stream closes the connection.", async () => {
    await withWire(
      (socket) => void socket.write(CHUNKED_HEAD + chunked(word("a"))),
      async (provider, wire) => {
        const leaving = new AbortController();
        const { chunks } = await provider.complete({ request: requestOf(), signal: leaving.signal });
        const heard: string[] = [];
        const reading = async () => {
          for await (const item of chunks) {
            heard.push(...item.map(({ delta }) => delta?.content ?? ""));
            leaving.abort(new Error("left"));
          }
        };
        await expect(reading()).rejects.toThrow("left");
        expect(heard).toEqual(["a"]);
        await closesInTime(wire);
      },
    );
  });

  test("an abort in the middle of an unstreamed answer closes the connection.", async () => {
    const written = Promise.withResolvers<void>();
    await withWire(
      (socket) => void socket.write(`${head(200, { "content-type": "application/json" })}{`, () => written.resolve()),
      async (provider, wire) => {
        const leaving = new AbortController();
        const heard = hear(provider, { stream: false }, leaving.signal);
        await written.promise;
        await served(50);
        leaving.abort(new Error("left"));
        expect(await heard).toMatchObject({ text: "", error: new Error("left") });
        await closesInTime(wire);
      },
    );
  });

  test("an abort before the call sends nothing.", async () => {
    await withWire(
      () => {},
      async (provider, wire) => {
        const { error } = await hear(provider, {}, AbortSignal.abort(new Error("left")));
        expect(error).toEqual(new Error("left"));
        expect(wire.connections).toBe(0);
      },
    );
  });

  test("leaving the loop closes the connection.", async () => {
    await withWire(
      (socket) => void socket.write(CHUNKED_HEAD + chunked(word("a"))),
      async (provider, wire) => {
        const { chunks } = await provider.complete({ request: requestOf(), signal: new AbortController().signal });
        for await (const _chunks of chunks) break;
        await closesInTime(wire);
      },
    );
  });

  test("a call of return ends a pending read.", async () => {
    await withWire(
      (socket) => void socket.write(CHUNKED_HEAD),
      async (provider, wire) => {
        const { chunks } = await provider.complete({ request: requestOf(), signal: new AbortController().signal });
        const iterator = chunks[Symbol.asyncIterator]();
        const waiting = iterator.next();
        await iterator.return?.();
        expect(await waiting).toEqual({ done: true, value: undefined });
        await closesInTime(wire);
      },
    );
  });

  test("an abort after the end has no effect.", async () => {
    await withWire(
      (socket) => void socket.write(CHUNKED_HEAD + chunked(word("a") + finish() + DONE) + LAST_CHUNK),
      async (provider, wire) => {
        for (let count = 0; count < 3; count += 1) {
          const leaving = new AbortController();
          expect((await hear(provider, {}, leaving.signal)).error).toBeUndefined();
          leaving.abort();
          await new Promise((resolve) => setImmediate(resolve));
        }
        expect(wire.connections).toBe(1);
      },
    );
  });
});

test("A client that does not read pauses the upstream, and no data is lost.", async () => {
  const count = 20_000;
  const words = Array.from({ length: count }, (_, index) => chunked(word(`${index} `.padEnd(400, "x"))));
  let taken = 0;
  const wire = await startWire((socket) => {
    socket.write(CHUNKED_HEAD);
    const write = () => {
      if (taken === count) socket.end(chunked(finish() + DONE) + LAST_CHUNK);
      else socket.write(words[taken] ?? "", write);
      taken += 1;
    };
    write();
  });
  const provider = createProvider(settingsOf(wire.baseUrl), {});
  const { chunks } = await provider.complete({ request: requestOf(), signal: new AbortController().signal });
  let before = -1;
  while (taken > before) {
    before = taken;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  expect(taken).toBeLessThan(count);
  let told = 0;
  let largest = 0;
  for await (const item of chunks) {
    told += item.filter(({ delta }) => delta?.content).length;
    largest = Math.max(largest, item.length);
  }
  expect(told).toBe(count);
  // Each piece is 450 bytes and more: an item never held more than 128 KiB.
  expect(largest).toBeLessThan((128 * 1024) / 450);
  await provider.close();
  await wire.end();
});
