import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decodeSpeech } from "../../src/api/speech/decode.ts";
import { operator } from "../support/admin.ts";
import { makeOrganization, type Organization, type RunningService, send, usageOf } from "../support/service.ts";
import { chargedIn, startTaskService } from "../support/tasks.ts";
import { type Behaviour, sendJson, type Upstream } from "../support/upstream.ts";

/** A credit for each character, so that a charge shows the counted ones. */
const PRICE = { input: 0, perCharacter: 1 };
/** Bytes of every value, in a length that is no multiple of three. */
const SOUND = Buffer.from(Array.from({ length: 1024 }, (_, at) => (at * 7) % 256));

const speaking =
  (sound = SOUND, contentType = "audio/mpeg"): Behaviour =>
  ({ response }) =>
    void response.writeHead(200, { "content-type": contentType }).end(sound);

const BEHAVIOURS: Record<string, Behaviour> = {
  plain: speaking(),
  long: speaking(Buffer.alloc(2 * 1024 * 1024, 1)),
  empty: speaking(Buffer.alloc(0)),
  html: speaking(Buffer.from("<html>"), "text/html"),
  json: ({ response }) => sendJson(response, 200, { error: { message: "no" } }),
  broken: ({ response }) => sendJson(response, 500, { error: { message: "down" } }),
  busy: ({ response }) => sendJson(response, 429, { error: { message: "slow down" } }),
  cut: ({ response }) => {
    response.writeHead(200, { "content-type": "audio/mpeg" });
    response.write(SOUND, () => setTimeout(() => response.destroy(), 20));
  },
  mute: () => {},
  endless: ({ response }) => {
    response.writeHead(200, { "content-type": "audio/mpeg" });
    const timer = setInterval(() => response.write(SOUND), 10);
    response.once("close", () => clearInterval(timer));
  },
};

let upstream: Upstream;
let service: RunningService;
let organization: Organization;
let end: () => Promise<void>;

beforeAll(async () => {
  const model = (id: string, routes = [id]) => ({
    ...{ id, category: "speech", price: PRICE },
    routes: routes.map((route) => ({ provider: "up", model: route })),
  });
  const models = [
    ...Object.keys(BEHAVIOURS).map((id) => model(id)),
    model("second", ["broken", "plain"]),
    { ...model("foreign"), routes: [{ provider: "foreign", model: "tts-1" }] },
    { ...model("other-wire"), routes: [{ provider: "claude", model: "claude" }] },
  ];
  const started = await startTaskService(
    BEHAVIOURS,
    (foreign) => foreign.onSpeech("good morning", { audio: SOUND.toString("base64"), format: "wav" }),
    models,
  );
  ({ upstream, service, organization, end } = started);
});

afterAll(() => end?.());

const post = (body: object, options: RequestInit = {}, token = organization.token) =>
  send(service, "/v1/audio/speech", token, { voice: "alloy", ...body }, options);

/** Returns the credits that a request took, and its answer. */
const charged = <T>(run: () => Promise<T>) =>
  chargedIn(service, organization, async () => {
    const answer = await run();
    await expect.poll(async () => (await usageOf(service, organization.token)).creditsHeld).toBe(0);
    return answer;
  });

describe("Speech through the openai package:", () => {
  const client = () => new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 0 });

  test("The bytes of an independent upstream are passed on, and the characters are charged.", async () => {
    const { answer, cost } = await charged(async () => {
      const speech = await client().audio.speech.create({ model: "foreign", voice: "alloy", input: "good morning" });
      return { type: speech.headers.get("content-type"), sound: Buffer.from(await speech.arrayBuffer()) };
    });
    expect(answer).toEqual({ type: "audio/wav", sound: SOUND });
    expect(cost).toBe("good morning".length);
  });

  test("The fields of a request reach the upstream, and characters are counted as people see them.", async () => {
    const before = upstream.requests.length;
    const fields = { input: "a😀é", voice: { id: "voice_1" }, response_format: "pcm", speed: 1.5 } as const;
    const { cost } = await charged(async () => {
      const speech = await client().audio.speech.create({ model: "plain", ...fields, instructions: "softly" });
      expect(Buffer.from(await speech.arrayBuffer())).toEqual(SOUND);
    });
    const { body, headers } = upstream.requests[before] ?? {};
    expect(body).toEqual({ model: "plain", ...fields, instructions: "softly" });
    expect(headers?.accept).toBe("*/*");
    expect(cost).toBe(3);
  });

  test("The sandbox plays a WAV file, the same for the same text.", async () => {
    const play = async (input: string) => {
      const speech = await client().audio.speech.create({ model: "sandbox/speech", voice: "a", input });
      return Buffer.from(await speech.arrayBuffer());
    };
    const { answer, cost } = await charged(() => play("hello"));
    expect(answer).toEqual(await play("hello"));
    expect(answer).not.toEqual(await play("hullo"));
    expect([answer.toString("latin1", 0, 4), answer.readUInt32LE(40), answer.length]).toEqual(["RIFF", 2000, 2044]);
    expect(cost).toBeCloseTo(0.000075, 6);
  });
});

test("Audio reaches the client while the upstream still writes.", async () => {
  const more = Promise.withResolvers<void>();
  upstream.behave("mute", async (request) => {
    request.response.writeHead(200, { "content-type": "audio/mpeg" });
    request.response.write(SOUND);
    setTimeout(() => request.response.write(SOUND), 50);
    await more.promise;
    request.response.end(SOUND);
  });
  const response = await post({ model: "mute", input: "hello" });
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const first = await reader.read();
  expect(first.value?.length).toBeGreaterThan(0);
  more.resolve();
  let length = first.value?.length ?? 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) length += next.value.length;
  expect(length).toBe(3 * SOUND.length);
  upstream.behave("mute", () => {});
});

test("The last bytes wait for the end, which comes after the charge.", () => {
  const sent: string[] = [];
  const { events } = decodeSpeech({ model: "m", input: "a", voice: "b" });
  const head = { id: "1", created: 1, model: "m", organizationId: "o", headers: { "content-type": "audio/mpeg" } };
  const encoder = events(head, (text) => sent.push(text));
  const piece = (text: string) => ({ delta: { audio: { data: Buffer.from(text).toString("base64") } } });
  encoder.push([piece("one"), piece("two")]);
  encoder.push([piece("end"), { finish_reason: "stop" }]);
  expect(sent.join("")).toBe("onetwo");
  encoder.close({
    finishReason: "stop",
    usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
    headers: {},
  });
  expect(sent.join("")).toBe("onetwoend");
});

describe("The hold is", () => {
  test("that of all characters.", async () => {
    const poor = await makeOrganization(service, "4");
    const before = upstream.requests.length;
    const response = await post({ model: "plain", input: "hello" }, {}, poor.token);
    expect(response.status).toBe(402);
    expect(await response.json()).toMatchObject({ error: { code: "insufficient_credits", credits_required: 5 } });
    expect(upstream.requests.length).toBe(before);
  });

  test.each([
    ["empty", 502],
    ["html", 502],
    ["json", 502],
    ["broken", 502],
    ["busy", 503],
  ])("released if the upstream's answer is %s.", async (model, status) => {
    const { answer, cost } = await charged(() => post({ model, input: "hello" }).catch(() => "cut"));
    expect(cost).toBe(0);
    // The headers of an empty answer are sent already.
    if (model !== "empty") expect(answer).toMatchObject({ status });
  });
});

test("Another route answers where the first one fails.", async () => {
  const { answer, cost } = await charged(async () => {
    const response = await post({ model: "second", input: "hello" });
    return [response.headers.get("x-tollgate-route"), Buffer.from(await response.arrayBuffer())];
  });
  expect([...answer, cost]).toEqual(["up/plain", SOUND, 5]);
});

test("An answer that breaks off reaches the client as one, and the text that was given to the provider is charged.", async () => {
  const { answer, cost } = await charged(() =>
    post({ model: "cut", input: "hello" })
      .then((response) => response.arrayBuffer())
      .then(
        () => "whole",
        () => "cut",
      ),
  );
  expect([answer, cost]).toEqual(["cut", 5]);
});

test.each(["mute", "endless"])("A client that disconnects pays for the text, once: %s.", async (model) => {
  const own = await makeOrganization(service, "100");
  const before = upstream.requests.length;
  const leaving = new AbortController();
  const begun = post({ model, input: "hello" }, { signal: leaving.signal }, own.token);
  const sent = begun.then((response) => response.arrayBuffer()).catch(() => "left");
  await expect.poll(() => upstream.requests.length).toBe(before + 1);
  if (model === "endless") await begun;
  leaving.abort();
  expect(await sent).toBe("left");
  await upstream.requests[before]?.closed;
  await expect.poll(() => usageOf(service, own.token)).toMatchObject({ creditsHeld: 0, creditsUsed: 5 });
});

describe("A repeated request with an Idempotency-Key", () => {
  const keyed = (key: string, body: object) => post(body, { headers: { "idempotency-key": key } });

  test("gets the same bytes again, and is charged once.", async () => {
    const run = async () => {
      const response = await keyed("one", { model: "plain", input: "hello" });
      return { headers: response.headers, sound: Buffer.from(await response.arrayBuffer()) };
    };
    const { answer, cost } = await charged(async () => [await run(), await run()] as const);
    expect(cost).toBe(5);
    expect(answer[1].sound).toEqual(answer[0].sound);
    expect(answer[1].headers.get("content-type")).toBe("audio/mpeg");
    expect(answer[1].headers.get("x-tollgate-idempotent-replay")).toBe("true");
  });

  test("is refused where the first response was too long to store.", async () => {
    const first = await keyed("long", { model: "long", input: "hello" });
    expect((await first.arrayBuffer()).byteLength).toBe(2 * 1024 * 1024);
    const repeated = await keyed("long", { model: "long", input: "hello" });
    expect([repeated.status, await repeated.json()]).toMatchObject([
      409,
      { error: { code: "idempotency_interrupted" } },
    ]);
  });
});

test.each([
  [{ model: "plain" }, "missing_required_parameter", "input"],
  [{ model: "plain", input: "a", voice: null }, "missing_required_parameter", "voice"],
  [{ model: "plain", input: "" }, "invalid_value", "input"],
  [{ model: "plain", input: "x".repeat(4_097) }, "invalid_value", "input"],
  [{ model: "plain", input: "a", voice: 7 }, "invalid_type", "voice"],
  [{ model: "plain", input: "a", speed: 5 }, "decimal_above_max_value", "speed"],
  [{ model: "plain", input: "a", response_format: "midi" }, "invalid_value", "response_format"],
  [{ model: "plain", input: "a", stream_format: "sse" }, "unsupported_value", "stream_format"],
  [{ model: "sandbox/speech", input: "a", response_format: "mp3" }, "unsupported_value", "response_format"],
  [{ model: "sandbox/echo", input: "a" }, "unsupported_value", "model"],
  [{ model: "sandbox/image", input: "a" }, "unsupported_value", "model"],
  [{ model: "other-wire", input: "a" }, "unsupported_value", "model"],
])("A wrong request names the field: %j", async (body, code, param) => {
  const response = await post(body);
  const { error } = (await response.json()) as { error: object };
  expect([response.status, error]).toMatchObject([400, { code, param }]);
});

test("Speech appears in the request log with its characters, and its model in the list of models.", async () => {
  const own = await makeOrganization(service, "100");
  await (await post({ model: "plain", input: "hello" }, {}, own.token)).arrayBuffer();
  const { body } = await operator(service).call<{ data: { id: string }[] }>(
    "GET",
    `/requests?organization_id=${own.id}`,
  );
  expect(body.data).toMatchObject([{ model: "plain", status: "complete", charged: 5 }]);
  const detail = await operator(service).call("GET", `/requests/${body.data[0]?.id}`);
  expect(detail.body).toMatchObject({ tokens: { characters: 5 }, prices: { characters: 1 } });
  const models = await send(service, "/v1/models/sandbox%2Fspeech", own.token);
  expect(await models.json()).toMatchObject({
    ...{ category: "speech", capabilities: ["speech"], max_output_tokens: 0 },
    pricing: "0.000015 credits per character",
  });
});
