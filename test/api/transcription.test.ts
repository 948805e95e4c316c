import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeOrganization, type Organization, type RunningService, send, usageOf } from "../support/service.ts";
import { chargedIn, startTaskService } from "../support/tasks.ts";
import { type Behaviour, sendJson, type Upstream } from "../support/upstream.ts";

/** A credit for each second, so that a charge shows the counted ones. */
const BY_SECOND = { input: 0, perSecond: 1 };
const BY_TOKEN = { input: 1_000_000, inputAudio: 2_000_000, output: 1_000_000 };
/** Held, and charged without a report, as 9 seconds of 4 kbit/s. */
const SOUND = Buffer.from(Array.from({ length: 4_321 }, (_, at) => (at * 7) % 256));
const SECONDS_MOST = 9;

const text = "Good morning to you";
const segments = [
  { id: 0, start: 0, end: 1.5, text: " Good morning" },
  { id: 1, start: 3661.25, end: 3662, text: " to you" },
];
const saying =
  (fields: object = {}): Behaviour =>
  ({ response }) =>
    sendJson(response, 200, { text, ...fields });
const tokens = { type: "tokens", input_tokens: 12, output_tokens: 4, total_tokens: 16 };

const BEHAVIOURS: Record<string, Behaviour> = {
  plain: saying({ usage: { type: "duration", seconds: 2.4 } }),
  verbose: saying({ task: "transcribe", language: "english", duration: 1.2, segments }),
  tokens: saying({ usage: { ...tokens, input_token_details: { audio_tokens: 10, text_tokens: 2 } } }),
  silent: saying(),
  negative: saying({ usage: { type: "duration", seconds: -3 } }),
  nonsense: saying({ usage: { type: "duration", seconds: "many" } }),
  huge: saying({ usage: { type: "duration", seconds: 1e12 } }),
  absurd: saying({ duration: 1e300, usage: { input_tokens: 1.5, output_tokens: 1e300 } }),
  broken: ({ response }) => sendJson(response, 500, { error: { message: "down" } }),
  busy: ({ response }) => sendJson(response, 429, { error: { message: "slow down" } }),
  "no-text": ({ response }) => sendJson(response, 200, { text: 7 }),
  "not-json": ({ response }) => void response.writeHead(200, { "content-type": "application/json" }).end("{"),
  "too-long": ({ response }) => sendJson(response, 200, { text: "a".repeat(17 * 1024 * 1024) }),
  mute: () => {},
};

let upstream: Upstream;
let service: RunningService;
let organization: Organization;
let end: () => Promise<void>;

beforeAll(async () => {
  const model = (id: string, price: object, route = id, more: object = {}) => ({
    ...{ id, category: "transcription", price, ...more },
    routes: [{ provider: "up", model: route }],
  });
  const models = [
    ...Object.keys(BEHAVIOURS).map((id) => model(id, BY_SECOND)),
    model("by-tokens", BY_TOKEN, "tokens", { contextWindow: 1_000, maxOutputTokens: 100 }),
    ...["absurd", "silent"].map((id) =>
      model(`${id}-tokens`, BY_TOKEN, id, { contextWindow: 1_000, maxOutputTokens: 100 }),
    ),
    { ...model("foreign", BY_SECOND), routes: [{ provider: "foreign", model: "whisper-1" }] },
    { ...model("other-wire", BY_SECOND), routes: [{ provider: "claude", model: "claude" }] },
  ];
  const started = await startTaskService(
    BEHAVIOURS,
    (foreign) => foreign.onTranscription({ transcription: { text, language: "english", duration: 3.2, segments } }),
    models,
  );
  ({ upstream, service, organization, end } = started);
});

afterAll(() => end?.());

type Fields = Record<string, string | Blob>;

/** Sends a form; a field of the form is left out if it is empty. */
async function post(
  fields: Fields,
  headers: Record<string, string> = {},
  options: RequestInit & { token?: string } = {},
) {
  const form = new FormData();
  const all: Fields = { file: new File([SOUND], "a.mp3", { type: "audio/mpeg" }), ...fields };
  for (const [name, value] of Object.entries(all)) {
    if (value !== "") form.append(name, value);
  }
  const { token = organization.token, ...others } = options;
  const authorization = `Bearer ${token}`;
  const init = { method: "POST", headers: { authorization, ...headers }, body: form, ...others };
  const response = await fetch(`${service.baseUrl}/audio/transcriptions`, init);
  const body = await response.text();
  return { status: response.status, headers: response.headers, text: body, json: () => JSON.parse(body) };
}

const charged = <T>(run: () => Promise<T>) => chargedIn(service, organization, run);

describe("Transcriptions through the openai package:", () => {
  const client = () => new OpenAI({ apiKey: organization.token, baseURL: service.baseUrl, maxRetries: 0 });

  test("An independent upstream's text is returned with its duration, which is charged.", async () => {
    const file = await toFile(SOUND, "a.mp3");
    const { answer, cost } = await charged(() =>
      client().audio.transcriptions.create({ model: "foreign", file, response_format: "verbose_json" }),
    );
    expect(answer).toMatchObject({ text, duration: 3.2, usage: { type: "duration", seconds: 4, cost: 4 } });
    expect(cost).toBe(4);
  });

  test("The fields and the file of a request reach the upstream.", async () => {
    const before = upstream.requests.length;
    const file = await toFile(SOUND, "a.mp3", { type: "audio/mpeg" });
    const fields = { language: "en", prompt: "Hello.", temperature: 0.2, response_format: "verbose_json" } as const;
    await client().audio.transcriptions.create({
      ...{ model: "verbose", file, ...fields },
      timestamp_granularities: ["word", "segment"],
    });
    const body: Record<string, unknown> = { ...upstream.requests[before]?.body };
    const { file: sent, "timestamp_granularities[]": granularities, ...rest } = body;
    expect(rest).toEqual({ model: "verbose", ...fields, temperature: "0.2" });
    expect(granularities).toBe("segment");
    expect([(sent as File).name, (sent as File).type]).toEqual(["a.mp3", "audio/mpeg"]);
    expect(Buffer.from(await (sent as File).arrayBuffer())).toEqual(SOUND);
  });

  test("The sandbox states how long the speech of the sandbox is.", async () => {
    const speech = await client().audio.speech.create({ model: "sandbox/speech", voice: "a", input: "x".repeat(25) });
    const file = await toFile(Buffer.from(await speech.arrayBuffer()), "a.wav");
    const { answer, cost } = await charged(() =>
      client().audio.transcriptions.create({ model: "sandbox/transcribe", file, response_format: "json" }),
    );
    expect(answer.text).toBe("A WAV file of 1.25 seconds.");
    expect(cost).toBeCloseTo(2 * 0.0001, 6);
  });
});

describe("The charge is", () => {
  test.each([
    ["the reported seconds, a begun one in full", "plain", 3],
    ["the duration of the answer", "verbose", 2],
    ["that of the smallest bit rate if the upstream reports tokens alone", "tokens", SECONDS_MOST],
    ["that of the smallest bit rate if the upstream reports nothing", "silent", SECONDS_MOST],
    ["that of the smallest bit rate if the report is negative", "negative", SECONDS_MOST],
    ["that of the smallest bit rate if the report is no number", "nonsense", SECONDS_MOST],
    ["that of the smallest bit rate if the report is above it", "huge", SECONDS_MOST],
    ["that of the smallest bit rate if the report is absurd", "absurd", SECONDS_MOST],
    ["the counted tokens if the report is absurd", "absurd-tokens", Math.ceil(SOUND.length / 400) + 4],
    ["the counted tokens without a report", "silent-tokens", Math.ceil(SOUND.length / 400) + 4],
    ["the reported tokens, those of audio at their own price", "by-tokens", 2 + 10 * 2 + 4],
  ])("%s.", async (_name, model, credits) => {
    const { answer, cost } = await charged(() => post({ model }));
    expect([answer.status, answer.json().usage.cost, cost]).toEqual([200, credits, credits]);
  });

  test.each([
    ["broken", 502],
    ["no-text", 502],
    ["not-json", 502],
    ["too-long", 502],
    ["busy", 503],
  ])("nothing if the upstream's answer is %s.", async (model, status) => {
    const { answer, cost } = await charged(() => post({ model }));
    expect([answer.status, cost]).toEqual([status, 0]);
  });
});

test("Tokens that are counted are returned as tokens, and not as the seconds that the file could have.", async () => {
  const answer = await post({ model: "silent-tokens" });
  expect(answer.json().usage).toMatchObject({ type: "tokens", input_tokens: 11, output_tokens: 4, total_tokens: 15 });
});

test("Each format of an answer is what it is at OpenAI.", async () => {
  const ask = (response_format: string) => post({ model: "verbose", response_format });
  expect((await ask("json")).json()).toEqual({ text, usage: { type: "duration", seconds: 2, cost: 2 } });
  expect((await ask("verbose_json")).json()).toMatchObject({ text, language: "english", duration: 1.2, segments });
  const plain = await ask("text");
  expect([plain.headers.get("content-type"), plain.text]).toEqual(["text/plain; charset=utf-8", `${text}\n`]);
  expect((await ask("srt")).text).toBe(
    "1\n00:00:00,000 --> 00:00:01,500\nGood morning\n\n2\n01:01:01,250 --> 01:01:02,000\nto you\n\n",
  );
  expect((await ask("vtt")).text).toBe(
    "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nGood morning\n\n01:01:01.250 --> 01:01:02.000\nto you\n\n",
  );
  expect((await post({ model: "plain", response_format: "srt" })).status).toBe(502);
});

test("A file that looks like the lines of its form arrives unchanged, with its name.", async () => {
  const bytes = Buffer.from("\r\n--b\r\n\r\n--\r\n\r\n".repeat(100_000));
  const before = upstream.requests.length;
  const name = 'a "quoted"\r\nü%41.mp3';
  expect((await post({ model: "plain", file: new File([bytes], name) })).status).toBe(200);
  const file = upstream.requests[before]?.body?.file as unknown as File;
  expect(Buffer.from(await file.arrayBuffer()).equals(bytes)).toBe(true);
  expect(file.name).toBe(name);
});

test("A name that is encoded otherwise is read too.", async () => {
  const before = upstream.requests.length;
  const body = [
    '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nplain',
    "--b\r\nContent-Disposition: form-data; name=file; filename*=utf-8''%C3%BC.mp3\r\n\r\nsound",
    "--b--",
  ].join("\r\n");
  const headers = {
    authorization: `Bearer ${organization.token}`,
    "content-type": 'multipart/form-data; boundary="b"',
  };
  const answer = await fetch(`${service.baseUrl}/audio/transcriptions`, { method: "POST", headers, body });
  expect(answer.status).toBe(200);
  expect(upstream.requests[before]?.body?.file).toHaveProperty("name", "ü.mp3");
});

test("Seconds above the bound are charged as the bound, logged, and recorded.", async () => {
  const own = await makeOrganization(service, "100");
  const answer = await post({ model: "huge" }, {}, { token: own.token });
  expect(answer.json().usage).toEqual({ type: "duration", seconds: SECONDS_MOST, cost: SECONDS_MOST });
  const { body } = await operator(service).call<{ data: { id: string }[] }>(
    "GET",
    `/requests?organization_id=${own.id}`,
  );
  const detail = await operator(service).call("GET", `/requests/${body.data[0]?.id}`);
  expect(detail.body).toMatchObject({ basis: "bounded", attempts: [{ reported: { seconds: 1e12 } }] });
  const lines = service.output().split("\n");
  const logged = lines.filter((line) => line.includes(own.id) && line.includes("the bound was charged"));
  expect(logged).toHaveLength(1);
});

test("A request without enough credits for the longest audio of its size is refused before the upstream is called.", async () => {
  const poor = await makeOrganization(service, "4");
  const before = upstream.requests.length;
  const { status, json } = await post({ model: "plain" }, {}, { token: poor.token });
  expect([status, json().error]).toMatchObject([402, { code: "insufficient_credits", credits_required: SECONDS_MOST }]);
  expect(upstream.requests.length).toBe(before);
});

test("A client that disconnects pays for the longest audio of its size, once.", async () => {
  const own = await makeOrganization(service, "100");
  const before = upstream.requests.length;
  const leaving = new AbortController();
  const sent = post({ model: "mute" }, {}, { token: own.token, signal: leaving.signal }).catch(() => "left");
  await expect.poll(() => upstream.requests.length).toBe(before + 1);
  leaving.abort();
  expect(await sent).toBe("left");
  await expect.poll(() => usageOf(service, own.token)).toMatchObject({ creditsHeld: 0, creditsUsed: SECONDS_MOST });
});

test("A repeated request with an Idempotency-Key gets the first response again, whatever the boundary of its form.", async () => {
  const keyed = (fields: Fields) => post({ model: "plain", ...fields }, { "idempotency-key": "one" });
  const { answer, cost } = await charged(async () => [await keyed({}), await keyed({})] as const);
  expect([answer[1].text, cost]).toEqual([answer[0].text, 3]);
  expect(answer[1].headers.get("x-tollgate-idempotent-replay")).toBe("true");
  expect((await keyed({ file: new File([SOUND.subarray(1)], "a.mp3") })).status).toBe(422);
});

describe("A wrong request is refused:", () => {
  test.each<[Fields, string, string]>([
    [{ model: "" }, "missing_required_parameter", "model"],
    [{ model: "plain", file: "" }, "missing_required_parameter", "file"],
    [{ model: "plain", file: "text" }, "invalid_type", "file"],
    [{ model: "plain", temperature: "hot" }, "invalid_type", "temperature"],
    [{ model: "plain", temperature: "2" }, "decimal_above_max_value", "temperature"],
    [{ model: "plain", response_format: "docx" }, "invalid_value", "response_format"],
    [{ model: "plain", stream: "true" }, "unsupported_value", "stream"],
    [{ model: "sandbox/transcribe" }, "unsupported_value", "file"],
    [{ model: "sandbox/echo" }, "unsupported_value", "model"],
    [{ model: "other-wire" }, "unsupported_value", "model"],
  ])("%j", async (fields, code, param) => {
    const { status, json } = await post(fields);
    expect([status, json().error]).toMatchObject([400, { code, param }]);
    expect(json().error.message).not.toContain("out of range");
  });

  const raw = async (type: string, body: string | Buffer, path = "/audio/transcriptions") => {
    const headers = { authorization: `Bearer ${organization.token}`, "content-type": type };
    const response = await fetch(`${service.baseUrl}${path}`, { method: "POST", headers, body });
    return { status: response.status, error: ((await response.json()) as { error: { message: string } }).error };
  };
  const part = (name: string) => `--b\r\ncontent-disposition: form-data; name="${name}"\r\n\r\nx\r\n`;

  test.each([
    ["without a boundary", "multipart/form-data", part("model"), "no boundary"],
    ["that does not end", "multipart/form-data; boundary=b", part("model"), "cannot be read"],
    ["that is empty", "multipart/form-data; boundary=b", "", "cannot be read"],
    ["that is noise", "multipart/form-data; boundary=b", Buffer.alloc(100_000, 13), "cannot be read"],
    [
      "with thousands of parts",
      "multipart/form-data; boundary=b",
      `${part("a").repeat(9_000)}--b--`,
      "more than 32 parts",
    ],
    ["with a part without a name", "multipart/form-data; boundary=b", "--b\r\na: b\r\n\r\nx\r\n--b--", "has no name"],
    [
      "with endless headers",
      "multipart/form-data; boundary=b",
      `--b\r\n${"a: b\r\n".repeat(3_000_000)}`,
      "cannot be read",
    ],
    ["with an endless name", "multipart/form-data; boundary=b", part("%0D".repeat(6_000_000)), "cannot be read"],
  ])("a form %s.", async (_name, type, body, reason) => {
    const { status, error } = await raw(type, body);
    expect([status, error]).toMatchObject([400, { code: "invalid_value", message: expect.stringContaining(reason) }]);
  });

  test("a form that is too large.", async () => {
    const { status } = await raw("multipart/form-data; boundary=b", Buffer.alloc(21 * 1024 * 1024));
    expect(status).toBe(413);
  });

  test("JSON where a form is needed, and a form where JSON is.", async () => {
    const json = await raw("application/json", "{}");
    expect([json.status, json.error.message]).toEqual([415, expect.stringContaining("multipart/form-data")]);
    const encoded = await raw("application/x-www-form-urlencoded", "model=plain");
    expect([encoded.status, encoded.error.message]).toEqual([415, expect.stringContaining("multipart/form-data")]);
    const form = await raw("multipart/form-data; boundary=b", `${part("model")}--b--`, "/chat/completions");
    expect([form.status, form.error.message]).toEqual([415, expect.stringContaining("application/json")]);
  });
});

test("Transcriptions appear in the request log with their seconds, and their model in the list of models.", async () => {
  const own = await makeOrganization(service, "100");
  await post({ model: "plain" }, {}, { token: own.token });
  const { body } = await operator(service).call<{ data: { id: string }[] }>(
    "GET",
    `/requests?organization_id=${own.id}`,
  );
  expect(body.data).toMatchObject([{ model: "plain", status: "complete", charged: 3 }]);
  const detail = await operator(service).call("GET", `/requests/${body.data[0]?.id}`);
  expect(detail.body).toMatchObject({ tokens: { seconds: 3 }, prices: { seconds: 1 } });
  const models = await send(service, "/v1/models/sandbox%2Ftranscribe", own.token);
  expect(await models.json()).toMatchObject({
    ...{ category: "transcription", capabilities: ["transcription"] },
    pricing: "0.0001 credits per second",
  });
});
