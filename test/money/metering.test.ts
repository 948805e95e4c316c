import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { AnswerPiece } from "../../src/api/answer.ts";
import { AnswerFold } from "../../src/api/answer-fold.ts";
import { decodeChatCompletion } from "../../src/api/chat/decode.ts";
import { decodeMessages } from "../../src/api/messages/decode.ts";
import { decodeResponses } from "../../src/api/responses/decode.ts";
import { type SentTextVisitor, visitSent } from "../../src/api/sent-text.ts";
import type { DecodedCompletion } from "../../src/api/wire.ts";
import { Meter } from "../../src/gateway/meter.ts";
import { MessagesReader } from "../../src/providers/native/messages.ts";
import { ResponsesReader } from "../../src/providers/native/responses.ts";
import type { WireReader } from "../../src/providers/openai/answer.ts";
import { ChunkReader } from "../../src/providers/openai/chunks.ts";
import { countOf } from "../support/counts.ts";

/**
 * Everything that a client receives is metered: each text in the events of a random upstream is marked, and a mark that
 * reaches the client must be in the metered text. Nothing here knows which fields a wire has.
 */
const RUNS = countOf("metering");
const MARK = /⟦\d+⟧/g;

let marks = 0;
/** A text that is too long to be a part of the frame, and no data. */
const text = fc.constantFrom(1, 8, 40).map((times) => {
  marks += 1;
  return `⟦${marks}⟧ ${"some words ".repeat(times * 6)}`;
});

/** Fields that some wire knows, and others. */
const NAMES = [
  ..."type id index delta content content_block text thinking signature data partial_json input name arguments".split(
    " ",
  ),
  ..."item item_id output_index part annotation annotations logprobs audio images image_url url refusal role".split(
    " ",
  ),
  ..."reasoning reasoning_content reasoning_details tool_calls function_call function citations summary status".split(
    " ",
  ),
  ..."content_filter_results encrypted_content transcript token bytes top_logprobs stop_reason invented other_text".split(
    " ",
  ),
];
const TYPES = [
  ..."text thinking redacted_thinking tool_use server_tool_use text_delta thinking_delta input_json_delta".split(" "),
  ..."signature_delta citations_delta message function_call custom_tool_call reasoning web_search_call".split(" "),
  ..."output_text refusal invented".split(" "),
];

const { value } = fc.letrec<{ value: unknown; object: Record<string, unknown> }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    { arbitrary: text, weight: 5 },
    { arbitrary: fc.constantFrom<unknown>(null, true, 7, ...TYPES), weight: 3 },
    { arbitrary: fc.array(tie("value"), { maxLength: 3 }), weight: 2 },
    { arbitrary: tie("object"), weight: 4 },
  ),
  object: fc.dictionary(fc.oneof(fc.constantFrom(...NAMES), text), tie("value"), { maxKeys: 5 }),
}));
const fields = fc.dictionary(fc.constantFrom(...NAMES), value, { maxKeys: 6 });
const typed = (types: readonly string[]) =>
  fc.record({ type: fc.constantFrom(...types), rest: fields }).map(({ type, rest }) => ({ ...rest, type }));

const toolCall = fc.record(
  { index: fc.nat(2), id: text, function: fields, invented: value },
  { requiredKeys: ["index"] },
);
const delta = fc
  .tuple(
    fields,
    fc.record(
      {
        content: fc.oneof(text, fc.array(typed(TYPES), { maxLength: 3 })),
        refusal: text,
        reasoning_content: text,
        tool_calls: fc.array(toolCall, { maxLength: 2 }),
        audio: fields,
        annotations: fc.array(value, { maxLength: 2 }),
      },
      { requiredKeys: [] },
    ),
  )
  .map(([others, known]) => ({ ...others, ...known }));
const chatEvent = fc.tuple(fields, fields, delta, value).map(([whole, choice, inner, logprobs]) => ({
  ...whole,
  choices: [{ ...choice, index: 0, delta: inner, logprobs }],
}));

const at = (events: fc.Arbitrary<Record<string, unknown>>, places: readonly string[]) =>
  fc.tuple(events, ...places.map(() => fc.nat(2))).map(([event, ...numbers]) => ({
    ...event,
    ...Object.fromEntries(places.map((place, nth) => [place, numbers[nth]])),
  }));
const blockEvent = at(
  fc.oneof(
    fc
      .tuple(fields, typed(TYPES))
      .map(([rest, block]) => ({ ...rest, type: "content_block_start", content_block: block })),
    fc.tuple(fields, typed(TYPES)).map(([rest, piece]) => ({ ...rest, type: "content_block_delta", delta: piece })),
    typed(["content_block_stop", "message_delta", "content_block_invented"]),
  ),
  ["index"],
);
const outputEvent = at(
  fc.oneof(
    fc.tuple(typed(["response.output_item.added", "response.output_item.done"]), typed(TYPES)).map(([event, item]) => ({
      ...event,
      item,
    })),
    fc
      .tuple(
        typed(
          [
            "output_text",
            "refusal",
            "reasoning_text",
            "reasoning_summary_text",
            "function_call_arguments",
            "invented",
          ].map((name) => `response.${name}.delta`),
        ),
        fc.oneof(text, value),
      )
      .map(([event, piece]) => ({ ...event, delta: piece })),
    typed(["response.output_text.done", "response.content_part.done", "response.invented"]),
  ),
  ["output_index", "content_index"],
);

const CHAT = { model: "m", messages: [{ role: "user", content: "go" }], logprobs: true };
const decodedChat = () => decodeChatCompletion(CHAT, "reply") as DecodedCompletion;
const NO_HEADERS = { version: undefined, beta: undefined };
const decodedMessages = () =>
  decodeMessages({ model: "m", max_tokens: 9, messages: CHAT.messages }, NO_HEADERS) as DecodedCompletion;
const decodedResponses = () => decodeResponses({ model: "m", input: "go" }) as DecodedCompletion;

interface Wire {
  events: fc.Arbitrary<object>;
  reader: () => WireReader;
  decoded: () => DecodedCompletion;
}

const unscrubbed = (said: string) => said;
const WIRES: Record<string, Wire> = {
  "chat completions": { events: chatEvent, reader: () => new ChunkReader(), decoded: decodedChat },
  "chat completions to Messages": { events: chatEvent, reader: () => new ChunkReader(), decoded: decodedMessages },
  "chat completions to Responses": { events: chatEvent, reader: () => new ChunkReader(), decoded: decodedResponses },
  Messages: { events: blockEvent, reader: () => new MessagesReader(), decoded: decodedMessages },
  Responses: {
    events: outputEvent,
    reader: () => new ResponsesReader(unscrubbed, { keepsEvents: true }),
    decoded: decodedResponses,
  },
};

const HEAD = { id: "0".repeat(32), created: 1, model: "m", organizationId: "org_x", headers: {} };
const END = {
  finishReason: "stop" as const,
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  headers: {},
};

function piecesOf({ reader: create }: Wire, events: readonly object[]): AnswerPiece[] {
  const reader = create();
  return events.flatMap((event) => reader.readEvent(JSON.parse(JSON.stringify(event))) ?? []);
}

function streamed({ decoded }: Wire, pieces: readonly AnswerPiece[]): string {
  const encoder = decoded().events();
  let sent = "";
  const add = (event: string) => {
    sent += event;
  };
  encoder.open(HEAD, add);
  for (const piece of pieces) encoder.push([piece], add);
  encoder.close(END, add);
  return sent;
}

function unstreamed({ decoded }: Wire, pieces: readonly AnswerPiece[]): string {
  const fold = new AnswerFold();
  fold.add(pieces);
  return JSON.stringify(decoded().document(HEAD, fold, END));
}

/** Everything that the meter is given of an answer. */
function metered(pieces: readonly AnswerPiece[]): string {
  let all = "";
  const add = (piece: string) => {
    all += `${piece}\n`;
  };
  const visitor: SentTextVisitor = { output: add, reasoning: add, other: add, data() {}, logprobs() {} };
  for (const piece of pieces) visitSent(piece, visitor);
  return all;
}

const marksIn = (sent: string) => new Set(sent.match(MARK));

describe.each(Object.entries(WIRES))("On %s", (_name, wire) => {
  test("nothing that a client receives is left out of the metered text.", () => {
    let seen = 0;
    fc.assert(
      fc.property(fc.array(wire.events, { minLength: 1, maxLength: 6 }), (events) => {
        const pieces = piecesOf(wire, events);
        const counted = marksIn(metered(pieces));
        const sent = new Set([...marksIn(streamed(wire, pieces)), ...marksIn(unstreamed(wire, pieces))]);
        seen += sent.size;
        expect([...sent].filter((mark) => !counted.has(mark))).toEqual([]);
        const meter = new Meter(4_096);
        meter.add(pieces);
        if (sent.size > 0) expect(meter.hasContent).toBe(true);
      }),
      { numRuns: RUNS },
    );
    expect(seen).toBeGreaterThan(RUNS);
  });
});
