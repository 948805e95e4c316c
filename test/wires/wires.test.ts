import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { AnswerFold } from "../../src/api/answer-fold.ts";
import { toChatCompletion } from "../../src/api/chat/encode.ts";
import type { RequestMessage } from "../../src/api/chat/request.ts";
import { EVENT_LENGTH_MAX } from "../../src/providers/http/event-stream.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { Provider, ProviderAnswer, UpstreamChunk, UpstreamRequest } from "../../src/providers/provider.ts";
import { settingsOf } from "../support/wire.ts";
import {
  CALLS,
  IMAGE_ADDRESS,
  JSON_SCHEMA,
  JSON_TEXT,
  LOGPROBS,
  PNG,
  SETTINGS,
  TEXT,
  TOOLS,
  type WireFixture,
} from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { framed, type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const MODES = [
  ["whole", false],
  ["streamed", true],
] as const;
const QUESTION: RequestMessage = { role: "user", content: "What is it?" };
const JSON_FORMAT = {
  type: "json_schema" as const,
  json_schema: { name: "city", schema: JSON_SCHEMA, strict: true },
};

/** Timeout that a busy machine does not reach. */
const PATIENT_MS = 60_000;

let server: ScriptedServer;
beforeAll(async () => {
  server = await startScriptedServer();
});
afterAll(() => server.end());

/** The answer as a client would have it, and what it was made of. */
async function ask(provider: Provider, fields: Partial<UpstreamRequest>, signal = new AbortController().signal) {
  const request: UpstreamRequest = { model: "", messages: [QUESTION], max_tokens: 100, stream: false, ...fields };
  const chunks: UpstreamChunk[] = [];
  let answer: ProviderAnswer | undefined;
  let error: unknown;
  try {
    answer = await provider.complete({ request, signal });
    for await (const batch of answer.chunks) chunks.push(...batch);
  } catch (failure) {
    error = failure;
  }
  return { chunks, error, ignored: answer?.ignored ?? [], ...folded(chunks) };
}

function folded(chunks: UpstreamChunk[]) {
  const fold = new AnswerFold();
  fold.add(chunks);
  const head = { id: "", created: 0, model: "", organizationId: "", headers: {} };
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const [choice] = toChatCompletion(head, fold, { finishReason: "stop", usage, headers: {} }, []).choices;
  if (choice === undefined) throw new Error("There is no choice");
  const last = <Name extends keyof UpstreamChunk>(name: Name) =>
    chunks.findLast((chunk) => chunk[name] !== undefined)?.[name];
  return {
    message: choice.message,
    logprobs: choice.logprobs,
    finishReason: last("finish_reason"),
    usage: last("usage"),
  };
}

describe.each(FIXTURES)("$kind", (fixture: WireFixture) => {
  const { model } = fixture;
  let provider: Provider;
  const providerWith = (idleMs: number) => {
    const { apiKey = null, ...settings } = fixture.settings;
    const baseUrl = `${server.origin}${fixture.basePath}`;
    const timeouts = { connectMs: PATIENT_MS, firstByteMs: PATIENT_MS, idleMs };
    return createProvider(settingsOf(baseUrl, { kind: fixture.kind, apiKey, timeouts, ...settings }), {});
  };
  beforeEach(async () => {
    server.reset();
    provider = providerWith(PATIENT_MS);
    return () => provider.close();
  });
  /** The turn after tool calls, with their results. */
  const answerCalls = (message: Awaited<ReturnType<typeof ask>>["message"], fields: Partial<UpstreamRequest>) => {
    const results = ["12 degrees", "9 degrees"].map((content, index): RequestMessage => {
      return { role: "tool", content, tool_call_id: message.tool_calls?.[index]?.id ?? "" };
    });
    const { content: _none, refusal: _no, ...reply } = message;
    const messages: RequestMessage[] = [QUESTION, JSON.parse(JSON.stringify(reply)), ...results];
    return ask(provider, { ...fields, tools: TOOLS, messages });
  };
  const sent = (index = 0) => server.requests[index]?.body ?? {};

  describe.each(MODES)("%s", (mode, stream) => {
    const path = fixture.paths[mode];

    test("text, and its usage as classes that do not overlap", async () => {
      server.answer(scripted(fixture, fixture.text, stream));
      const heard = await ask(provider, { model, stream });
      expect(heard.error).toBeUndefined();
      expect(heard.message).toMatchObject({ content: TEXT });
      expect(heard).toMatchObject({ finishReason: "stop", ignored: [] });
      expect(heard.usage).toEqual(fixture.text.usage);
      expect(server.requests[0]?.path).toMatch(path);
      for (const [name, value] of Object.entries(fixture.credentials)) {
        expect(server.requests[0]?.headers[name]).toMatch(value);
      }
      expect(server.requests[0]?.headers).toMatchObject({ "accept-encoding": "identity", "user-agent": "tollgate" });
    });

    test("two tool calls, and the turn after them", async () => {
      server.answer(scripted(fixture, fixture.tools, stream), scripted(fixture, fixture.text, stream));
      const first = await ask(provider, { model, stream, tools: TOOLS });
      expect(first.error).toBeUndefined();
      expect(first.finishReason).toBe("tool_calls");
      const calls = first.message.tool_calls ?? [];
      expect(calls.map(({ function: called }) => ({ ...called, arguments: JSON.parse(called.arguments) }))).toEqual(
        CALLS,
      );
      expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
      expect(sent()).toMatchObject(fixture.tools.sent);
      const second = await answerCalls(first.message, { model, stream });
      expect(second.error).toBeUndefined();
      expect(second.message.content).toBe(TEXT);
      expect(sent(1)).toMatchObject(fixture.secondTurn);
    });

    const { interleaved } = fixture;
    test.runIf(interleaved !== undefined)("reasoning between two calls goes back in its place", async () => {
      const { secondTurn = {}, whole, events = [] } = interleaved ?? {};
      server.answer(scripted(fixture, { whole, events }, stream), scripted(fixture, fixture.text, stream));
      const first = await ask(provider, { model, stream, tools: TOOLS });
      await answerCalls(first.message, { model, stream });
      expect(sent(1)).toMatchObject(secondTurn);
    });

    test("structured output", async () => {
      server.answer(scripted(fixture, fixture.structured, stream));
      const heard = await ask(provider, { model, stream, response_format: JSON_FORMAT });
      expect(heard.error).toBeUndefined();
      expect(heard.message.content).toBe(JSON_TEXT);
      expect(sent()).toMatchObject(fixture.structured.sent);
    });

    test("log probabilities, where the wire tells them", async () => {
      const asked = { model, stream, logprobs: true, top_logprobs: 1 };
      if (fixture.logprobs === undefined) {
        expect((await ask(provider, asked)).error).toMatchObject({ failure: "unsupported" });
        expect(server.requests).toEqual([]);
        return;
      }
      server.answer(scripted(fixture, fixture.logprobs, stream));
      const heard = await ask(provider, asked);
      expect(heard.message.content).toBe(TEXT);
      expect(heard.logprobs).toEqual({ content: LOGPROBS, refusal: null });
      expect(sent()).toMatchObject(fixture.logprobs.sent);
    });

    test.each(fixture.errors)("$what: $failure", async ({ status, headers = {}, body, failure, retryAfterSeconds }) => {
      server.answer({ status, headers, body: JSON.stringify(body) });
      const { error } = await ask(provider, { model, stream });
      expect(error).toMatchObject({ failure });
      expect(error).toHaveProperty("retryAfterSeconds", retryAfterSeconds);
      if (failure === "credentials" || failure === "failed") expect(error).toHaveProperty("publicReason", undefined);
    });

    test("no redirect is followed, and no page is read", async () => {
      server.answer({ status: 302, headers: { location: `${server.origin}/elsewhere` }, body: "" });
      expect((await ask(provider, { model, stream })).error).toMatchObject({ failure: "malformed" });
      server.answer({ headers: { "content-type": "text/html" }, body: "<html>" });
      expect((await ask(provider, { model, stream })).error).toMatchObject({ failure: "malformed" });
      expect(server.requests.length).toBe(2);
    });

    test("an answer that is no answer", async () => {
      server.answer({ ...scripted(fixture, fixture.text, stream), body: "{" });
      expect((await ask(provider, { model, stream })).error).toMatchObject({
        failure: expect.stringMatching(/malformed|failed/),
      });
    });
  });

  describe("a stream that breaks", () => {
    const { events } = fixture.text;
    const first = events.findIndex((event) => JSON.stringify(event).includes('"Hello "'));
    const begun = Buffer.concat(events.slice(0, first + 1).map((event) => framed(fixture.framing, event)));
    const whole = scripted(fixture, fixture.text, true);
    const said = () => expect.stringMatching(/^Hello /);

    test.each([
      ["by a reset", "reset", "failed"],
      ["by silence", "hold", "timeout"],
      ["by ending too early", "whole", "failed"],
    ] as const)("%s: what came before it, then the failure", async (_how, ending, failure) => {
      if (ending === "hold") {
        await provider.close();
        provider = providerWith(200);
      }
      server.answer({ ...whole, body: begun, ending });
      const heard = await ask(provider, { model, stream: true });
      expect(heard.error).toMatchObject({ failure });
      expect(heard.message.content).toEqual(said());
    });

    test("in the middle of an event", async () => {
      const more = framed(fixture.framing, events.at(-1)).subarray(0, 20);
      server.answer({ ...whole, body: Buffer.concat([begun, more]), ending: "reset" });
      const heard = await ask(provider, { model, stream: true });
      expect(heard.error).toMatchObject({ failure: "failed" });
      expect(heard.message.content).toEqual(said());
    });

    test("after its end: it is complete all the same", async () => {
      server.answer({ ...whole, ending: "reset" });
      expect(await ask(provider, { model, stream: true })).toMatchObject({
        error: undefined,
        message: { content: TEXT },
      });
    });

    test("by an event without an end", async () => {
      const endless =
        fixture.framing === "frames"
          ? Buffer.from([0x7f, 0, 0, 0])
          : Buffer.alloc(EVENT_LENGTH_MAX + 100_000, "data: x");
      server.answer({ ...whole, body: Buffer.concat([begun, endless]), ending: "hold" });
      expect((await ask(provider, { model, stream: true })).error).toMatchObject({ failure: "malformed" });
      await server.closed();
    });

    test("by an error that it tells", async () => {
      const { event, failure } = fixture.errorEvent ?? { event: undefined, failure: "malformed" };
      const bytes = event === undefined ? Buffer.from("data: {\n\n") : framed(fixture.framing, event);
      server.answer({ ...whole, body: Buffer.concat([begun, bytes]), ending: "hold" });
      const heard = await ask(provider, { model, stream: true });
      expect(heard.error).toMatchObject({ failure, publicReason: undefined });
      expect(heard.message.content).toEqual(said());
      await server.closed();
    });

    test("by an error before its first word", async () => {
      if (fixture.errorEvent === undefined) return;
      const { event, failure } = fixture.errorEvent;
      server.answer({ ...whole, body: framed(fixture.framing, event), ending: "hold" });
      const heard = await ask(provider, { model, stream: true });
      expect(heard.error).toMatchObject({ failure, publicReason: undefined });
      await server.closed();
    });

    test("because its caller leaves: the connection is closed, and the reason is the caller's", async () => {
      const leaving = new AbortController();
      server.answer({ ...whole, body: begun, ending: "hold" });
      const request = { model, messages: [QUESTION], max_tokens: 100, stream: true };
      const { chunks } = await provider.complete({ request, signal: leaving.signal });
      const reading = (async () => {
        for await (const _batch of chunks) leaving.abort(new Error("gone"));
      })();
      await expect(reading).rejects.toThrow("gone");
      await server.closed();
    });

    test("because its caller has had enough", async () => {
      server.answer({ ...whole, body: begun, ending: "hold" });
      const request = { model, messages: [QUESTION], max_tokens: 100, stream: true };
      const { chunks } = await provider.complete({ request, signal: new AbortController().signal });
      for await (const _batch of chunks) break;
      await server.closed();
    });
  });

  test("a request that is aborted before it begins is not sent", async () => {
    const signal = AbortSignal.abort(new Error("gone"));
    expect((await ask(provider, { model }, signal)).error).toMatchObject({ message: "gone" });
    expect(server.requests).toEqual([]);
  });

  test("an image, by its bytes", async () => {
    server.answer(scripted(fixture, fixture.text, false));
    const url = `data:image/png;base64,${PNG}`;
    const heard = await ask(provider, { model, messages: [imageMessage(url)] });
    expect(heard.error).toBeUndefined();
    expect(sent()).toMatchObject(fixture.image.sent);
  });

  test("an image, by its address", async () => {
    server.answer(scripted(fixture, fixture.text, false));
    const { error } = await ask(provider, { model, messages: [imageMessage(IMAGE_ADDRESS)] });
    if (fixture.imageAddress === undefined) {
      expect(error).toMatchObject({ failure: "unsupported", publicReason: expect.stringContaining("image") });
      expect(server.requests).toEqual([]);
    } else {
      expect(error).toBeUndefined();
      expect(sent()).toMatchObject(fixture.imageAddress.sent);
    }
  });

  test("settings, and the names of those that it leaves out", async () => {
    server.answer(scripted(fixture, fixture.text, false));
    const { stop, ...hints } = SETTINGS;
    const takesStop = JSON.stringify(fixture.settingsSent).includes("END");
    const heard = await ask(provider, { model, ...hints, ...(takesStop && { stop }) });
    expect(heard.error).toBeUndefined();
    expect(sent()).toMatchObject(fixture.settingsSent);
    expect([...heard.ignored].sort()).toEqual(fixture.settingsIgnored);
  });

  test.each(["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const)(
    "effort %s: no more tokens than are held are asked for",
    async (effort) => {
      const asked = [model, ...fixture.thinkers].flatMap((name) =>
        [1, 100, 4_096].map((bound) => [name, bound] as const),
      );
      for (const [name, maxTokens] of asked) {
        server.reset();
        server.answer(scripted(fixture, fixture.text, false));
        const heard = await ask(provider, { model: name, max_tokens: maxTokens, reasoning_effort: effort });
        expect(heard.error).toBeUndefined();
        const bounds = fixture.bounds
          .map((field) => valueAt(sent(), field))
          .filter((value) => typeof value === "number");
        expect(bounds.length).toBeGreaterThan(0);
        expect(bounds.reduce((sum, value) => sum + value, 0)).toBeLessThanOrEqual(Math.max(maxTokens, 2));
      }
    },
  );

  test.each(["required", "named", "none"] as const)("tool_choice: %s", async (choice) => {
    server.answer(scripted(fixture, fixture.text, false));
    const named = { type: "function" as const, function: { name: "weather" } };
    const heard = await ask(provider, { model, tools: TOOLS, tool_choice: choice === "named" ? named : choice });
    expect(heard.error).toBeUndefined();
    expect(sent()).toMatchObject(fixture.toolChoices[choice]);
  });
});

function imageMessage(url: string): RequestMessage {
  return {
    role: "user",
    content: [
      { type: "text", text: "What is it?" },
      { type: "image_url", image_url: { url } },
    ],
  };
}

function valueAt(body: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((value, step) => (value as Record<string, unknown> | undefined)?.[step], body);
}
