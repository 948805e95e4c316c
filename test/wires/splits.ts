import { AnswerFold } from "../../src/api/answer-fold.ts";
import { decodeChatCompletion } from "../../src/api/chat/decode.ts";
import { decodeGenerateContent } from "../../src/api/gemini/decode.ts";
import { decodeMessages } from "../../src/api/messages/decode.ts";
import { decodeResponses } from "../../src/api/responses/decode.ts";
import type { DecodedCompletion } from "../../src/api/wire.ts";
import type { Route } from "../../src/catalog/model.ts";
import { estimatePrompt } from "../../src/credits/estimate.ts";
import { FREE, priceOf } from "../../src/credits/price.ts";
import { chargeOf, OutputRates, tokenBoundsOf } from "../../src/gateway/charge.ts";
import { toolCallCompleter } from "../../src/gateway/deliver.ts";
import { Meter, usageOf } from "../../src/gateway/meter.ts";
import { createProvider } from "../../src/providers/index.ts";
import type { Provider, UpstreamChunk } from "../../src/providers/provider.ts";
import type { ProviderSettings, SecondWire } from "../../src/providers/settings.ts";
import { secondWireSettings } from "../support/second-wire.ts";
import { settingsOf, startWire, type Wire } from "../support/wire.ts";
import { type Answer, TOOLS, type WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { scripted, TYPES } from "./scripted-server.ts";

const ANSWERS = ["text", "tools", "interleaved", "structured", "logprobs"] as const;
const CONCURRENT = 8;
const LIMITS = { contextWindow: 100_000, maxOutputTokens: 4_000, imageTokensMax: 0 };
const MAX_TOKENS = 1_000;
const PRICES = { ...FREE, input: 1_251_000n, cachedInput: 127_000n, cacheWrite: 1_567_000n, output: 10_003_000n };
const HEAD = { id: "0".repeat(32), created: 0, model: "m", organizationId: "org", headers: {} };
/** Text of more than one byte per character in the place of the fixtures' own, so that characters are split too. */
const WIDE: readonly (readonly [string, string])[] = [
  ["far away", "Zürich 🏔️"],
  ["for two cities", "für zwei Städte – 🌍"],
  ["Bern", "Bérn🐻"],
];

/** A stream of an upstream, and the settings of the provider that reads it. */
export interface SplitCase {
  name: string;
  bytes: Buffer;
  /** Asks the provider on this inbound wire, and passes the upstream's events on to it. */
  native?: SecondWire["wire"];
  contentType: string;
  model: string;
  settingsAt(origin: string): ProviderSettings;
}

/** Everything that must not depend on the places at which a stream is split. */
interface Heard {
  events: Record<string, string>;
  message: unknown;
  tokens: unknown;
  microCredits: bigint;
}

/** Returns each stream of each provider's fixtures, on each wire that the provider reads. */
export function splitCases(): SplitCase[] {
  return FIXTURES.flatMap((fixture) => ANSWERS.flatMap((name) => casesOf(fixture, name)));
}

function casesOf(fixture: WireFixture, name: (typeof ANSWERS)[number]): SplitCase[] {
  const answer: Answer | undefined = fixture[name];
  if (answer === undefined) return [];
  const { kind, basePath, framing, model } = fixture;
  const bytes = Buffer.from(scripted(fixture, wide(answer), true).body);
  const common = { bytes, contentType: TYPES[framing], model };
  const { apiKey = null, ...settings } = fixture.settings;
  const own = (origin: string) => settingsOf(`${origin}${basePath}`, { kind, apiKey, ...settings });
  const second = SECOND_WIRES[kind];
  const cases: SplitCase[] = [{ ...common, name: `${kind}, ${name}`, settingsAt: own }];
  if (second === undefined) return cases;
  const settingsAt = (origin: string) => secondWireSettings({ wire: second }, `${origin}${basePath}`);
  return [...cases, { ...common, name: `${kind}, ${name}, passed on`, native: second, settingsAt }];
}

/** Providers whose streams are also those of an inbound wire. */
const SECOND_WIRES: Readonly<Record<string, SecondWire["wire"]>> = { anthropic: "messages", xai: "responses" };

function wide({ whole, events }: Answer): Answer {
  const text = WIDE.reduce((json, [narrow, more]) => json.replaceAll(narrow, more), JSON.stringify(events));
  return { whole, events: JSON.parse(text) };
}

/**
 * Returns the places at which a stream is split: all of them up to a length; in longer streams those next to the ends of
 * events and in characters of several bytes, and every few bytes between them.
 */
export function placesIn({ bytes }: SplitCase, allUpToBytes: number): number[] {
  const places = Array.from({ length: bytes.length - 1 }, (_, index) => index + 1);
  if (bytes.length <= allUpToBytes) return places;
  const step = Math.ceil(bytes.length / allUpToBytes) * 2 + 1;
  const isBreak = (place: number) => [-2, -1, 0, 1].some((near) => bytes[place + near] === 0x0a);
  return places.filter((place) => place % step === 0 || isBreak(place) || (bytes[place] ?? 0) >= 0x80);
}

/** Reads a case split at each place, and returns the places at which the split changes anything. */
export async function differencesOf(one: SplitCase, places: readonly number[]): Promise<Difference[]> {
  const reader = await SplitReader.open(one);
  try {
    return await reader.differences(places);
  } finally {
    await reader.close();
  }
}

interface Difference {
  place: number;
  heard: Heard | { error: string };
}

/** Reads one stream, whole and split, with the adapter of its provider over a connection of its own. */
class SplitReader {
  readonly #case: SplitCase;
  readonly #wire: Wire;
  readonly #provider: Provider;

  private constructor(one: SplitCase, wire: Wire, provider: Provider) {
    this.#case = one;
    this.#wire = wire;
    this.#provider = provider;
  }

  static async open(one: SplitCase): Promise<SplitReader> {
    const head = `HTTP/1.1 200 OK\r\ncontent-type: ${one.contentType}\r\ntransfer-encoding: chunked\r\n\r\n`;
    const wire = await startWire((socket, request) => {
      // Otherwise the second part waits until the first one is acknowledged.
      socket.setNoDelay();
      const place = Number(/place (\d+)/.exec(request)?.[1]);
      const [first, second] = [one.bytes.subarray(0, place), one.bytes.subarray(place)].map(chunk);
      socket.write(Buffer.concat([Buffer.from(head), first ?? LAST]));
      // By the second turn the reader has the first part.
      setImmediate(() => setImmediate(() => socket.write(Buffer.concat([second ?? LAST, LAST]))));
    });
    const provider = createProvider(one.settingsAt(new URL(wire.baseUrl).origin), {});
    return new SplitReader(one, wire, provider);
  }

  async differences(places: readonly number[]): Promise<Difference[]> {
    const whole = await this.read(this.#case.bytes.length);
    if (whole.microCredits === 0n) throw new Error(`${this.#case.name}: the whole stream is not charged`);
    const expected = JSON.stringify(whole, bigintAsText);
    const different: Difference[] = [];
    let next = 0;
    const readOn = async () => {
      for (let place = places[next++]; place !== undefined; place = places[next++]) {
        const heard = await this.read(place).catch((error: unknown) => ({ error: String(error) }));
        if (JSON.stringify(heard, bigintAsText) !== expected) different.push({ place, heard });
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT }, readOn));
    return different;
  }

  async read(place: number): Promise<Heard> {
    const { model, native: wire } = this.#case;
    const content = `place ${place}`;
    const request = { model, messages: [{ role: "user" as const, content }], max_tokens: MAX_TOKENS, tools: TOOLS };
    const native = wire && { native: { wire, body: { content }, headers: {} } };
    const signal = new AbortController().signal;
    const { chunks } = await this.#provider.complete({ request: { ...request, stream: true }, signal, ...native });
    const batches: (readonly UpstreamChunk[])[] = [];
    for await (const batch of chunks) batches.push(batch);
    return heardOf(batches);
  }

  async close(): Promise<void> {
    await this.#provider.close();
    await this.#wire.end();
  }
}

const LAST = Buffer.from("0\r\n\r\n");

/** A part of a body with its length, so that the reader receives it as a piece of its own. */
function chunk(bytes: Buffer): Buffer {
  if (bytes.length === 0) return Buffer.alloc(0);
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

const QUESTION = { role: "user" as const, content: "go" };
const ESTIMATE = estimatePrompt({ model: "m", messages: [QUESTION] }, LIMITS);

function decodedRequests(): Record<string, DecodedCompletion> {
  const common = { model: "m", stream: true };
  const messages = [QUESTION];
  return {
    chat: decodeChatCompletion({ ...common, messages, stream_options: { include_usage: true } }),
    responses: decodeResponses({ ...common, input: "go" }),
    gemini: decodeGenerateContent(
      { contents: { parts: { text: "go" } } },
      { model: "m", isStreamed: true, isEvents: false },
    ),
    messages: decodeMessages({ ...common, messages, max_tokens: MAX_TOKENS }, {}),
  };
}
const DECODED = decodedRequests();

/** Charges an answer and encodes it on each inbound wire, batch by batch, as the gateway does. */
async function heardOf(batches: readonly (readonly UpstreamChunk[])[]): Promise<Heard> {
  const completeToolCalls = toolCallCompleter(HEAD.id);
  const meter = new Meter(MAX_TOKENS);
  const fold = new AnswerFold();
  const pieces = batches.map((batch) => completeToolCalls(batch));
  for (const batch of pieces) {
    meter.add(batch);
    fold.add(batch);
  }
  const tokens = await tokensOf(meter);
  const microCredits = priceOf(tokens, PRICES);
  const finishReason = meter.choices.reasons[0] ?? "stop";
  const end = { finishReason, usage: usageOf(tokens, microCredits), ended: 0, headers: {} };
  const events = Object.entries(DECODED).map(([name, decoded]) => {
    let text = "";
    const add = (event: string) => {
      text += event;
    };
    const encoder = decoded.events(HEAD, add);
    for (const batch of pieces) encoder.push(batch);
    encoder.close(end);
    return [name, text];
  });
  return { events: Object.fromEntries(events), message: fold.message(), tokens, microCredits };
}

async function tokensOf(meter: Meter) {
  const route: Route = { providerId: "up", model: "m", prices: PRICES };
  const bounds = tokenBoundsOf(LIMITS, route, ESTIMATE, MAX_TOKENS);
  const count = async () => {
    throw new Error("The fixture reports no usage");
  };
  const { tokens } = await chargeOf(
    { tokenCounter: { count }, outputRates: new OutputRates() },
    {
      plan: {
        model: { capabilities: new Set() },
        estimate: ESTIMATE,
        isStreamed: true,
        isInputOnly: false,
        promptTexts: () => [],
      },
      route,
      bounds,
      prices: PRICES,
      meter,
      isClientDisconnected: false,
      elapsedMs: 0,
    },
  );
  return tokens;
}

function bigintAsText(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}
