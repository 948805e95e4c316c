import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import {
  completion,
  event,
  head,
  hear,
  hearBytes,
  STREAM_HEAD,
  settingsOf,
  startWire,
  whole,
  word,
} from "../../test/support/wire.ts";
import { createProvider } from "./index.ts";

const STREAMED = [true, false];

describe.each(STREAMED)("An error status (streamed: %s):", (stream) => {
  test.each([
    [400, "rejected"],
    [401, "credentials"],
    [402, "credentials"],
    [403, "credentials"],
    [404, "misconfigured"],
    [405, "failed"],
    [410, "misconfigured"],
    [408, "timeout"],
    [413, "rejected"],
    [418, "failed"],
    [422, "rejected"],
    [429, "rate_limited"],
    [500, "failed"],
    [502, "failed"],
    [503, "overloaded"],
    [504, "timeout"],
    [529, "overloaded"],
    [201, "malformed"],
    [204, "malformed"],
    [301, "malformed"],
    [302, "malformed"],
    [307, "malformed"],
    [308, "malformed"],
  ])("%d is %s.", async (status, failure) => {
    const { error } = await hearBytes(whole(status, { error: { message: "Because", code: "x" } }), { stream });
    expect(error).toMatchObject({ failure, message: expect.stringContaining(String(status)) });
    expect(error).toHaveProperty("publicReason", failure === "rejected" ? "Because" : undefined);
  });

  test("a redirect is not followed.", async () => {
    const other = await startWire((socket) => socket.end(whole(200, completion("from elsewhere"))));
    const { error } = await hearBytes(whole(302, "", { location: `${other.baseUrl}/chat/completions` }), { stream });
    expect(error).toMatchObject({ failure: "malformed" });
    expect(other.connections).toBe(0);
    await other.end();
  });

  test("an error with an unreadable body is classified by its status.", async () => {
    expect((await hearBytes(whole(400, "<html>"), { stream })).error).toMatchObject({ failure: "rejected" });
    expect((await hearBytes(whole(429, "[]"), { stream })).error).toMatchObject({ failure: "rate_limited" });
    expect((await hearBytes(whole(500, "{}").slice(0, -1), { stream })).error).toMatchObject({ failure: "failed" });
  });

  test("only a part of an error of 10 MiB is read.", async () => {
    const body = `{"error": {"message": "${"x".repeat(10 * 1024 * 1024)}`;
    const { error } = await hearBytes(whole(400, body), { stream });
    expect(error).toMatchObject({ failure: "rejected", publicReason: undefined });
  });
});

describe("Retry-After", () => {
  test.each([
    ["3", 3],
    ["0", 0],
    ["1.2", 2],
    ["999999999", 86_400],
    ["Wed, 21 Oct 2026 07:28:30 GMT", 30],
    ["Wed, 21 Oct 2026 07:00:00 GMT", 0],
    ["soon", undefined],
    ["-5", undefined],
    ["", undefined],
  ])("'%s' is %s seconds.", async (value, seconds) => {
    const headers = { "retry-after": value, date: "Wed, 21 Oct 2026 07:28:00 GMT" };
    for (const status of [429, 503, 529]) {
      const { error } = await hearBytes(whole(status, {}, headers));
      expect(error).toHaveProperty("retryAfterSeconds", seconds);
    }
  });

  test.each([
    ["36.2s", 37],
    ["0s", 0],
    ["99999999s", 86_400],
    [`${"9".repeat(400)}s`, 86_400],
    ["-5s", undefined],
    ["soon", undefined],
  ])("as Google's retryDelay, '%s' is %s seconds.", async (retryDelay, seconds) => {
    const { error } = await hearBytes(whole(429, { error: { code: 429, details: [{ retryDelay }] } }));
    expect(error).toMatchObject({ failure: "rate_limited", retryAfterSeconds: seconds });
  });

  test("is ignored on other failures.", async () => {
    const { error } = await hearBytes(whole(500, {}, { "retry-after": "3" }));
    expect(error).toHaveProperty("retryAfterSeconds", undefined);
  });
});

describe("A rejection:", () => {
  const tooLong = [
    { message: "x", code: "context_length_exceeded" },
    { message: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens." },
    { message: "the request exceeds the available context size", type: "exceed_context_size_error" },
    { message: "the input length exceeds the context length" },
    { message: "Prompt contains 40000 tokens, too large for model with 32768 maximum context length" },
    { message: "prompt is too long: 210000 tokens > 200000 maximum" },
    { message: "The input token count (5000) exceeds the maximum number of tokens allowed (4096)." },
    { message: "Please reduce the length of the messages or completion." },
    { message: "This model's maximum prompt length is 131072 but the request contains 140000 tokens." },
  ];
  test.each(tooLong)("$message $code is context_length.", async (error) => {
    for (const status of [400, 413, 422]) {
      const heard = await hearBytes(whole(status, { error }), { stream: false });
      expect(heard.error).toMatchObject({ failure: "context_length", publicReason: error.message });
    }
  });

  test.each([
    "max_tokens is too large: 5000. This model supports at most 4096 completion tokens.",
    "Invalid value for 'messages[0].content': expected a string.",
  ])("'%s' is not context_length.", async (message) => {
    const heard = await hearBytes(whole(400, { error: { message } }), { stream: false });
    expect(heard.error).toMatchObject({ failure: "rejected", publicReason: message });
  });

  test.each(["content_filter", "content_policy_violation"])("the code %s is content_filter.", async (code) => {
    const heard = await hearBytes(whole(400, { error: { message: "No", code } }), { stream: false });
    expect(heard.error).toMatchObject({ failure: "content_filter", publicReason: "No" });
  });

  test.each([
    { message: "Your chosen model requires moderation and your input was flagged for violence", code: 403 },
    { message: "Content violates usage guidelines.", code: "permission_denied" },
  ])("flagged content with the status 403 is content_filter: $message.", async (error) => {
    const heard = await hearBytes(whole(403, { error }), { stream: false });
    expect(heard.error).toMatchObject({ failure: "content_filter", publicReason: error.message });
  });

  test.each([
    [429, { message: "Your account is suspended", type: "exceeded_current_quota_error" }],
    [400, { message: "User location is not supported for the API use.", status: "FAILED_PRECONDITION" }],
    [400, { message: "This organization has been disabled.", type: "invalid_request_error" }],
  ])("a problem of the operator's account is credentials: %d %j.", async (status, error) => {
    const heard = await hearBytes(whole(status, { error }), { stream: false });
    expect(heard.error).toMatchObject({ failure: "credentials", publicReason: undefined });
  });

  test.each([
    [400, { message: "Model Not Exist", type: "invalid_request_error" }],
    [400, { message: "Invalid model: x", type: "invalid_model" }],
    [
      400,
      { message: "The model `x` has been decommissioned and is no longer supported.", code: "model_decommissioned" },
    ],
    [400, { message: "The model 'x' does not exist" }],
    [404, { message: "The model `x` does not exist.", type: "NotFoundError" }],
    [404, { message: 'model "x" not found, try pulling it first' }],
    [404, "404 page not found"],
  ])("a model that the upstream does not have is misconfigured: %d %j.", async (status, error) => {
    for (const stream of STREAMED) {
      const heard = await hearBytes(whole(status, { error }), { stream });
      expect(heard.error).toMatchObject({ failure: "misconfigured", publicReason: undefined });
    }
  });

  test("an account without credit is credentials with any status.", async () => {
    const body = { error: { message: "You exceeded your current quota", code: "insufficient_quota" } };
    expect((await hearBytes(whole(429, body))).error).toMatchObject({
      failure: "credentials",
      publicReason: undefined,
    });
  });

  test.each([
    [{ error: "just a text" }, "just a text"],
    [{ message: "at the top" }, "at the top"],
    [{ detail: "in detail" }, "in detail"],
    [{ object: "error", message: "of an older kind", code: 40_001 }, "of an older kind"],
  ])("the reason is read from another shape: %j.", async (body, publicReason) => {
    expect((await hearBytes(whole(400, body))).error).toMatchObject({ failure: "rejected", publicReason });
  });
});

describe("An error in an answer with status 200:", () => {
  test.each([
    [{ message: "slow down", type: "rate_limit_error" }, "rate_limited"],
    [{ message: "slow down", code: 429 }, "rate_limited"],
    [{ message: "down", code: "503" }, "overloaded"],
    [{ message: "who are you", code: "invalid_api_key" }, "credentials"],
    [{ message: "too long", code: "context_length_exceeded" }, "context_length"],
    [{ message: "bad words", type: "invalid_request_error", code: "content_filter" }, "content_filter"],
    [{ message: "bad request", type: "invalid_request_error" }, "rejected"],
    [{ message: "late", type: "timeout_error" }, "timeout"],
    [{ message: "broken", type: "server_error" }, "failed"],
    [{}, "failed"],
    ["a text", "failed"],
  ])("%j is %s.", async (error, failure) => {
    const unstreamed = await hearBytes(whole(200, { error }), { stream: false });
    const streamed = await hearBytes(STREAM_HEAD + word("a") + event({ error }));
    const asJson = await hearBytes(whole(200, { error }));
    expect([unstreamed.error, streamed.error, asJson.error]).toMatchObject([{ failure }, { failure }, { failure }]);
    expect(streamed.text).toBe("a");
  });

  test("null is not an error.", async () => {
    expect((await hearBytes(whole(200, completion("a", { error: null })), { stream: false })).text).toBe("a");
  });
});

describe.each(STREAMED)("A malformed answer (streamed: %s):", (stream) => {
  test.each([
    ["HTML", whole(200, "<html>Sign in</html>", { "content-type": "text/html; charset=utf-8" })],
    ["plain text", whole(200, JSON.stringify(completion("a")), { "content-type": "text/plain" })],
    ["no JSON", whole(200, "{")],
    ["nothing", whole(200, "")],
    ["a list", whole(200, "[]")],
    ["null", whole(200, "null")],
    ["no choices", whole(200, {})],
    ["no choice", whole(200, { choices: [] })],
    ["a choice without a message", whole(200, { choices: [{ index: 0, finish_reason: "stop" }] })],
    ["gzip that nobody asked for", whole(200, completion("a"), { "content-encoding": "gzip" })],
    ["a chain of encodings", whole(200, completion("a"), { "content-encoding": "gzip, br" })],
  ])("%s", async (_name, bytes) => {
    expect((await hearBytes(bytes, { stream })).error).toMatchObject({ failure: "malformed", publicReason: undefined });
  });

  test("a gzip bomb is not decompressed.", async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
    const length = String(bomb.length);
    const headers = { "content-type": "application/json", "content-encoding": "gzip", "content-length": length };
    const { error } = await hearBytes(Buffer.concat([Buffer.from(head(200, headers)), bomb]), { stream });
    expect(error).toMatchObject({ failure: "malformed" });
  });

  test("an answer in the other form than requested is accepted.", async () => {
    expect((await hearBytes(whole(200, completion("a")), { stream })).text).toBe("a");
    const streamed = STREAM_HEAD + word("b") + event({ choices: [{ delta: {}, finish_reason: "stop" }] });
    expect((await hearBytes(streamed, { stream })).text).toBe("b");
  });

  test("an answer without a content type is read as the requested one.", async () => {
    const untyped =
      head(200) +
      (stream ? `${word("a")}${event({ choices: [{ finish_reason: "stop" }] })}` : JSON.stringify(completion("a")));
    expect(await hearBytes(untyped, { stream })).toMatchObject({ text: "a", error: undefined });
  });
});

test("An unstreamed answer of more than 16 MiB is malformed, and its connection is closed.", async () => {
  const wire = await startWire((socket) => {
    socket.write(head(200, { "content-type": "application/json" }));
    const piece = "x".repeat(1024 * 1024);
    // Writing again after a failed write would never end: Node calls the callback of each write before it destroys the socket.
    const write = (failure?: Error | null) => void (failure || socket.destroyed || socket.write(piece, write));
    write();
  });
  const provider = createProvider(settingsOf(wire.baseUrl), {});
  expect((await hear(provider, { stream: false })).error).toMatchObject({ failure: "malformed" });
  await wire.closed();
  await provider.close();
  await wire.end();
});

describe("The list of models", () => {
  const listOf = async (bytes: string) => {
    const wire = await startWire((socket) => socket.end(bytes));
    const provider = createProvider(settingsOf(wire.baseUrl), {});
    try {
      return await provider.listModels?.(new AbortController().signal);
    } finally {
      await provider.close();
      await wire.end();
      expect(wire.requests[0]).toMatch(/^GET \/v1\/models HTTP/);
    }
  };

  test("contains the ids of the upstream's models.", async () => {
    expect(await listOf(whole(200, { data: [{ id: "a" }, { id: 5 }, null, { id: "b" }] }))).toEqual(["a", "b"]);
  });

  test.each([whole(200, "no"), whole(200, { models: [] }), whole(200, "[]")])(
    "is malformed without a data array.",
    async (bytes) => {
      await expect(listOf(bytes)).rejects.toMatchObject({ failure: "malformed" });
    },
  );

  test("fails with the same errors as an answer.", async () => {
    await expect(listOf(whole(401, {}))).rejects.toMatchObject({ failure: "credentials" });
  });
});
