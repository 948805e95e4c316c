import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import type { WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const KINDS = ["google", "google-vertex"];
const fixtureOf = (kind: string) => FIXTURES.find((fixture) => fixture.kind === kind) as WireFixture;
const PRICE = {
  ...{ input: 10, cachedInput: 1, inputAudio: 100, cachedAudio: 20, inputImage: 40 },
  ...{ output: 50, outputAudio: 500, outputImage: 300 },
};
const usageMetadata = {
  ...{ promptTokenCount: 100, cachedContentTokenCount: 30, candidatesTokenCount: 40, thoughtsTokenCount: 10 },
  promptTokensDetails: [
    { modality: "TEXT", tokenCount: 25 },
    { modality: "AUDIO", tokenCount: 50 },
    { modality: "IMAGE", tokenCount: 25 },
  ],
  cacheTokensDetails: [
    { modality: "TEXT", tokenCount: 5 },
    { modality: "AUDIO", tokenCount: 20 },
    { modality: "IMAGE", tokenCount: 5 },
  ],
  candidatesTokensDetails: [
    { modality: "TEXT", tokenCount: 12 },
    { modality: "AUDIO", tokenCount: 8 },
    { modality: "IMAGE", tokenCount: 20 },
  ],
};
/** Text, audio and images that were not cached, then what was, then the answer with its thoughts. */
const COST = (20 * 10 + 30 * 100 + 20 * 40 + 10 * 1 + 20 * 20 + (12 + 10) * 50 + 8 * 500 + 20 * 300) / 1e6;

let upstream: ScriptedServer;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = KINDS.map(fixtureOf).map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const models = KINDS.map((kind) => {
    const routes = [{ provider: kind, model: fixtureOf(kind).model }];
    return { id: kind, capabilities: ["vision"], price: PRICE, routes };
  });
  service = await startService({ config: { providers, models } });
  ({ token } = await makeOrganization(service, "1000"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

function answerWith(usage: object) {
  const parts = [{ text: "done" }];
  const content = { parts, role: "model" };
  return { candidates: [{ content, index: 0, finishReason: "STOP" }], usageMetadata: usage, modelVersion: "m" };
}

async function ask(kind: string, stream: boolean, usage: object) {
  const whole = answerWith(usage);
  upstream.answer(scripted(fixtureOf(kind), { whole, events: [whole] }, stream));
  const audio = { type: "input_audio", input_audio: { data: "AAAA".repeat(100), format: "wav" } };
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  const messages = [{ role: "user", content: [{ type: "text", text: "What is this?" }, audio, image] }];
  const body = { model: kind, stream, messages, ...(stream && { stream_options: { include_usage: true } }) };
  const text = await (await send(service, "/v1/chat/completions", token, body)).text();
  if (!stream) return JSON.parse(text).usage;
  const events = text.split("\n\n").filter((event) => event.includes('"usage":{'));
  return JSON.parse(events.at(-1)?.slice("data: ".length) ?? "{}").usage;
}

describe.each(KINDS)("Tokens by modality from %s", (kind) => {
  test.each([false, true])(
    "are charged at their prices and forwarded as they are charged; streamed: %s",
    async (stream) => {
      expect(await ask(kind, stream, usageMetadata)).toMatchObject({
        ...{ prompt_tokens: 100, completion_tokens: 50 },
        prompt_tokens_details: { cached_tokens: 30, audio_tokens: 50, cached_audio_tokens: 20, image_tokens: 20 },
        completion_tokens_details: { reasoning_tokens: 10, audio_tokens: 8, image_tokens: 20 },
        cost: COST,
      });
    },
  );

  test("cost as much as other tokens where the upstream names no modality.", async () => {
    const { promptTokensDetails: _p, cacheTokensDetails: _c, candidatesTokensDetails: _o, ...plain } = usageMetadata;
    const usage = await ask(kind, false, plain);
    expect(usage.prompt_tokens_details).not.toHaveProperty("image_tokens");
    expect(usage.cost).toBe((70 * 10 + 30 * 1 + 50 * 50) / 1e6);
  });

  test("are charged at most once where the parts are larger than the whole.", async () => {
    const odd = [{ modality: "AUDIO", tokenCount: 90_000 }];
    const usage = await ask(kind, false, { ...usageMetadata, candidatesTokensDetails: odd });
    expect(usage).toMatchObject({ completion_tokens: 50, completion_tokens_details: { audio_tokens: 40 } });
    expect(usage.cost).toBe((20 * 10 + 30 * 100 + 20 * 40 + 10 * 1 + 20 * 20 + 40 * 500 + 10 * 50) / 1e6);
  });
});

test("Afterwards the ledger balances.", async () => {
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});
