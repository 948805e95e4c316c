import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { AnswerPiece } from "../../src/api/answer.ts";
import { AnswerFold } from "../../src/api/answer-fold.ts";
import { decodeChatCompletion } from "../../src/api/chat/decode.ts";
import { decodeTextCompletion } from "../../src/api/chat/text-completion.ts";
import { decodeGenerateContent } from "../../src/api/gemini/decode.ts";
import { decodeMessages } from "../../src/api/messages/decode.ts";
import { decodeResponses } from "../../src/api/responses/decode.ts";
import { type SentTextVisitor, visitSent } from "../../src/api/sent-text.ts";
import type { DecodedCompletion } from "../../src/api/wire.ts";
import { toolCallCompleter } from "../../src/gateway/deliver.ts";
import { Meter } from "../../src/gateway/meter.ts";
import { AnswerReader } from "../../src/providers/ai-sdk/answer.ts";
import { google } from "../../src/providers/ai-sdk/wires/google.ts";
import { GeminiReader } from "../../src/providers/native/gemini.ts";
import { MessagesReader } from "../../src/providers/native/messages.ts";
import { ResponsesReader } from "../../src/providers/native/responses.ts";
import { ChoicesReader, ChunkReader } from "../../src/providers/openai/chunks.ts";
import { UpstreamError } from "../../src/providers/provider.ts";
import { countOf, timeoutOf } from "../support/counts.ts";
import {
  blockEvent,
  chatChoice,
  fields,
  geminiResponse,
  item,
  outputEvent,
  sdkContent,
  sdkPart,
  severalChoices,
  TYPES,
  textChoice,
  typed,
} from "./random-answers.ts";

/**
 * Everything that a client receives is metered: each text of a random upstream is marked, and a mark that reaches the client
 * must be in the metered text. Nothing here knows which fields a wire has, or which of them an encoder writes.
 */
const RUNS = countOf("metering");
const TIMEOUT_MS = timeoutOf("metering", 60_000);
const MARK = /⟦\d+⟧/g;

const CHAT = { model: "m", messages: [{ role: "user", content: "go" }], logprobs: true };
const FUNCTIONS = [{ name: "f", parameters: { type: "object" } }];
const NO_HEADERS = {};
const INBOUND: Record<string, () => DecodedCompletion> = {
  "chat completions": () => decodeChatCompletion(CHAT),
  "chat completions with functions": () => decodeChatCompletion({ ...CHAT, functions: FUNCTIONS }),
  completions: () => decodeTextCompletion({ model: "m", prompt: "go" }),
  Messages: () => decodeMessages({ model: "m", max_tokens: 9, messages: CHAT.messages }, NO_HEADERS),
  Gemini: () => {
    const call = { model: "m", isStreamed: true, isEvents: true };
    return decodeGenerateContent({ contents: { parts: { text: "go" } } }, call);
  },
  "Responses with OpenAI's tools": () => {
    const tools = [{ type: "shell" }, { type: "apply_patch" }];
    return decodeResponses({ model: "m", input: "go", tools });
  },
  Responses: () => decodeResponses({ model: "m", input: "go", include: ["message.output_text.logprobs"] }),
};

/** An upstream's wire: its events, or its whole answer, and the reader of a new answer. */
interface Outbound {
  events: fc.Arbitrary<object>;
  answer: fc.Arbitrary<object>;
  reader(): {
    event(one: never): AnswerPiece | readonly AnswerPiece[] | undefined;
    answer(one: never): readonly AnswerPiece[];
  };
  /** Inbound wires whose requests pass to it; all where it is absent. */
  inbound?: readonly string[];
}

const unscrubbed = (said: string) => said;
type WireReader = Pick<ChunkReader | ChoicesReader, "readEvent" | "readAnswer">;
const wireReader = (create: () => WireReader) => () => {
  const reader = create();
  return {
    event: (one: never) => reader.readEvent(one),
    answer: (one: never) => reader.readAnswer(one),
  };
};
const responses = (keepsEvents: boolean) => wireReader(() => new ResponsesReader(unscrubbed, { keepsEvents }));
const responsesAnswer = fc
  .tuple(fields, fc.array(item, { maxLength: 4 }))
  .map(([rest, output]) => ({ ...rest, output, status: "completed" }));

const OUTBOUND: Record<string, Outbound> = {
  "chat completions": {
    events: chatChoice("delta"),
    answer: chatChoice("message"),
    reader: wireReader(() => new ChunkReader()),
  },
  "chat completions with n": {
    events: severalChoices("delta"),
    answer: severalChoices("message"),
    reader: wireReader(() => new ChoicesReader(3)),
    inbound: ["chat completions", "chat completions with functions", "completions"],
  },
  "completions unchanged": {
    events: textChoice,
    answer: textChoice,
    reader: wireReader(() => new ChunkReader()),
    inbound: ["completions"],
  },
  "Messages unchanged": {
    events: blockEvent,
    answer: fc.tuple(fields, fc.array(typed(TYPES), { maxLength: 4 })).map(([rest, content]) => ({ ...rest, content })),
    reader: wireReader(() => new MessagesReader()),
    inbound: ["Messages"],
  },
  "Gemini unchanged": {
    events: geminiResponse,
    answer: geminiResponse,
    reader: wireReader(() => new GeminiReader()),
    inbound: ["Gemini"],
  },
  "Responses unchanged": {
    events: outputEvent,
    answer: responsesAnswer,
    reader: responses(true),
    inbound: ["Responses", "Responses with OpenAI's tools"],
  },
  Responses: {
    events: outputEvent,
    answer: responsesAnswer,
    reader: responses(false),
    inbound: Object.keys(INBOUND).filter((name) => !name.startsWith("Responses")),
  },
  "a package of the AI SDK": {
    events: sdkPart,
    answer: fc.array(sdkContent, { maxLength: 4 }).map((content) => ({
      content,
      finishReason: { unified: "stop", raw: "stop" },
      usage: { inputTokens: {}, outputTokens: {} },
    })),
    reader: () => {
      const reader = new AnswerReader(google);
      return { event: (one) => reader.readPart(one), answer: (one) => reader.readResult(one) };
    },
  },
};

const HEAD = { id: "0".repeat(32), created: 1, model: "m", organizationId: "org_x", headers: {} };
const END = {
  finishReason: "stop" as const,
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  headers: {},
};

/** Returns the pieces that `read` makes of an answer, as they are delivered; those before the failure of one that fails. */
function piecesOf(count: number, read: (index: number) => readonly (AnswerPiece | undefined)[]): AnswerPiece[] {
  const completeToolCalls = toolCallCompleter(HEAD.id);
  const pieces: AnswerPiece[] = [];
  try {
    for (let index = 0; index < count; index += 1) {
      pieces.push(...completeToolCalls(read(index).filter((piece) => piece !== undefined)));
    }
  } catch (error) {
    if (!(error instanceof UpstreamError)) throw error;
  }
  return pieces;
}

function streamed(decoded: DecodedCompletion, pieces: readonly AnswerPiece[]): string {
  let sent = "";
  const add = (event: string) => {
    sent += event;
  };
  const encoder = decoded.events(HEAD, add);
  for (const piece of pieces) encoder.push([piece]);
  encoder.close(END);
  return sent;
}

function unstreamed(decoded: DecodedCompletion, pieces: readonly AnswerPiece[]): string {
  const fold = new AnswerFold();
  fold.add(pieces);
  const document = decoded.document(HEAD, fold, END);
  return typeof document === "string" ? document : JSON.stringify(document);
}

/** Everything that the meter is given of an answer. */
function metered(pieces: readonly AnswerPiece[]): string {
  let all = "";
  const add = (piece: string) => {
    all += `${piece}\n`;
  };
  const visitor: SentTextVisitor = { output: { add }, reasoning: { add }, other: { add }, data() {}, logprobs() {} };
  for (const piece of pieces) visitSent(piece, visitor);
  return all;
}

const marksIn = (sent: string) => new Set(sent.match(MARK));

/** As JSON, because an upstream's answer is no other. */
const parsed = (one: object) => JSON.parse(JSON.stringify(one)) as never;

/**
 * Plays random answers from a wire to each inbound wire: making and reading them takes longer than writing them. Checks that
 * all marks in what a client receives are metered, and that many marks are received on each wire.
 */
function expectMetered<Answer>(
  wire: Outbound,
  answers: fc.Arbitrary<Answer>,
  read: (answer: Answer) => AnswerPiece[],
  write: (decode: () => DecodedCompletion, pieces: readonly AnswerPiece[]) => string,
): void {
  const inbound = wire.inbound ?? Object.keys(INBOUND);
  const seen = new Map(inbound.map((to) => [to, 0]));
  const property = fc.property(answers, (answer) => {
    const pieces = read(answer);
    const counted = marksIn(metered(pieces));
    const meter = new Meter(4_096);
    meter.add(pieces);
    for (const to of inbound) {
      const received = marksIn(write(INBOUND[to] as () => DecodedCompletion, pieces));
      expect(
        [...received].filter((mark) => !counted.has(mark)),
        `to ${to}`,
      ).toEqual([]);
      if (received.size > 0) expect(meter.hasContent, `to ${to}`).toBe(true);
      seen.set(to, (seen.get(to) ?? 0) + received.size);
    }
  });
  fc.assert(property, { numRuns: RUNS });
  for (const [to, marks] of seen) expect(marks, `to ${to}`).toBeGreaterThan(RUNS / 50);
  const received = [...seen.values()].reduce((sum, marks) => sum + marks, 0);
  expect(received, "to all wires").toBeGreaterThan((inbound.length * RUNS) / 5);
}

describe.each(Object.entries(OUTBOUND))("From %s to each wire of a client", (_from, wire) => {
  test(
    "nothing that a client receives of a stream is left out of the metered text.",
    () => {
      expectMetered(
        wire,
        fc.array(wire.events, { minLength: 1, maxLength: 6 }),
        (events) => {
          const reader = wire.reader();
          return piecesOf(events.length, (index) => [reader.event(parsed(events[index] as object)) ?? []].flat());
        },
        (decode, pieces) => streamed(decode(), pieces) + unstreamed(decode(), pieces),
      );
    },
    TIMEOUT_MS,
  );

  test(
    "nothing that a client receives of a whole answer is left out of the metered text.",
    () => {
      expectMetered(
        wire,
        wire.answer,
        (answer) => piecesOf(1, () => wire.reader().answer(parsed(answer))),
        (decode, pieces) => unstreamed(decode(), pieces),
      );
    },
    TIMEOUT_MS,
  );
});

test.each([
  ["a delta", (unknown: object) => ({ choices: [{ index: 0, delta: unknown }] })],
  ["a choice", (unknown: object) => ({ choices: [{ index: 0, delta: {}, ...unknown }] })],
  ["an event", (unknown: object) => ({ choices: [{ index: 0, delta: {} }], ...unknown })],
])("each word of an unknown field of %s is metered, whatever the name of the field", (_place, eventOf) => {
  const reader = new ChunkReader();
  const words = ["status", "name", "type", "stop_reason"].map((name) => [name, `word-of-${name}`] as const);
  const pieces = words.flatMap(([name, word]) => reader.readEvent(eventOf({ [name]: word })) ?? []);
  expect(metered(pieces).trim().split("\n").sort()).toEqual(words.flat().sort());
});
