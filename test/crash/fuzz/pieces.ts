import type { Random } from "../random.ts";
import type { Leaf, Piece, Wire } from "./intent.ts";

const ALPHABETS = [
  ["word", "time", "people", "night", "water", "number", "house", "river"],
  ["銀行", "天気", "漢字", "学校", "電車", "日本語"],
  ["😀", "🦊", "👩‍🚀", "🇪🇺", "🧪"],
  ["if(x){", "}", "return;", "=>", "0x7f", "<div>", "\\n", '"quoted"'],
  ["größer", "naïve", "čeština", "Ελλάδα", "мир"],
] as const;

/** Writes the texts of one answer. All are of one alphabet: the count of a long text is scaled from its beginning. */
export class Writer {
  readonly random: Random;
  readonly #id: string;
  readonly #alphabet: readonly string[];
  #marks = 0;
  #names = 0;
  #leaves: Leaf[] = [];

  constructor(random: Random, id: string) {
    this.random = random;
    this.#id = id;
    this.#alphabet = random.pick(ALPHABETS as unknown as [string[], ...string[][]]);
  }

  /** A new text with its mark. `isText`: a part of the reply or of its reasoning. */
  text(isText: boolean, prefix = ""): string {
    this.#marks += 1;
    const mark = `<${this.#id}.${this.#marks}>`;
    const size = this.random.chance(0.01) ? 1_500 : this.random.between(1, this.random.chance(0.1) ? 300 : 20);
    const words = Array.from({ length: size }, () => this.#alphabet[this.random.between(0, this.#alphabet.length - 1)]);
    const text = `${prefix}${mark} ${words.join(" ")}`;
    this.#leaves.push({ mark, text, isText });
    return text;
  }

  /** A name that no wire knows. */
  name(): string {
    this.#names += 1;
    return `${this.random.pick(["musings", "hologram", "x_note", "scent"])}_${this.#names}`;
  }

  /** A value that no wire knows. */
  value(depth = 0): unknown {
    const { random } = this;
    if (depth > 2 || random.chance(0.5)) return this.text(false);
    if (random.chance(0.3)) return random.pick<unknown>([null, true, -7, 1e21, [], {}]);
    if (random.chance(0.5)) return [this.value(depth + 1), this.value(depth + 1)];
    return { type: random.pick(["text", "thinking", "invented"]), [this.name()]: this.value(depth + 1) };
  }

  /** Returns the texts since the last call. */
  take(): Leaf[] {
    const leaves = this.#leaves;
    this.#leaves = [];
    return leaves;
  }
}

type Made = Omit<Piece, "leaves">;

interface Place {
  /** Its place among the answer's pieces. */
  index: number;
  /** True for one that the wire knows. */
  isKnown: boolean;
}

/** Makes a random piece of an answer on a wire. */
export function randomPiece(wire: Exclude<Wire, "embeddings">, writer: Writer, { index, isKnown }: Place): Piece {
  const kinds = isKnown ? KINDS[wire].slice(0, KNOWN_KINDS) : KINDS[wire];
  const make = writer.random.chance(0.5) ? kinds[0] : kinds[writer.random.between(0, kinds.length - 1)];
  const made = (make as (typeof kinds)[number])(writer, index);
  return { ...made, leaves: writer.take() };
}

const delta = (fields: Record<string, unknown>, beside: object = {}): Made => ({
  events: [{ choices: [{ index: 0, delta: fields, finish_reason: null, ...beside }] }],
  whole: { ...fields, ...(Object.keys(beside).length > 0 && { beside }) },
});

const CHAT: ((writer: Writer, index: number) => Made)[] = [
  (w) => delta({ content: w.text(true) }),
  (w) => delta({ reasoning_content: w.text(true) }),
  (w) => delta({ reasoning: w.text(true) }),
  (w) => delta({ refusal: w.text(true) }),
  (w) =>
    delta({
      content: [
        { type: "text", text: w.text(true) },
        { type: "thinking", thinking: w.text(false) },
      ],
    }),
  (w) => delta({ content: [{ type: "invented", [w.name()]: w.value() }] }),
  (w) => delta({ [w.name()]: w.value() }),
  (w) => delta({ content: w.text(true), [w.name()]: w.value() }),
  (w) => delta({ annotations: [{ type: "url_citation", url_citation: { url: "https://e.x", title: w.text(false) } }] }),
  (w) => delta({ audio: { id: "a", transcript: w.text(true) } }),
  (w) => delta({ content: w.text(true) }, { [w.name()]: w.value() }),
  (w) => {
    const event = { choices: [{ index: 0, delta: { content: w.text(true) } }], [w.name()]: w.value() };
    const { choices: _choices, ...whole } = event;
    return { events: [event], whole: { content: event.choices[0]?.delta.content, around: whole } };
  },
  (w, index) => {
    const called = { name: "look", arguments: JSON.stringify({ q: w.text(true) }) };
    const call = { index, id: `call_${index}`, type: "function", function: called, [w.name()]: w.value() };
    return delta({ tool_calls: [call] });
  },
  () => ({ events: [{ choices: [{ index: 1, delta: { content: "of another choice" } }] }], whole: {} }),
];

type Block = Record<string, unknown>;
/** The events of a block: its beginning, its pieces and its end. */
function block(index: number, begun: Block, deltas: Block[], whole: Block, ended: Block = {}): Made {
  return {
    events: [
      { type: "content_block_start", index, content_block: begun },
      ...deltas.map((piece) => ({ type: "content_block_delta", index, delta: piece })),
      { type: "content_block_stop", index, ...ended },
    ],
    whole,
  };
}

const MESSAGES: typeof CHAT = [
  (w, index) => {
    const text = w.text(true);
    return block(index, { type: "text", text: "" }, [{ type: "text_delta", text }], { type: "text", text });
  },
  (w, index) => {
    const thinking = w.text(true);
    const signed = { type: "signature_delta", signature: "c2lnbmVk" };
    const whole = { type: "thinking", thinking, signature: "c2lnbmVk" };
    return block(index, { ...whole, thinking: "" }, [{ type: "thinking_delta", thinking }, signed], whole);
  },
  (w, index) => {
    const input = { q: w.text(true) };
    const called = { type: "tool_use", id: `toolu_${index}`, name: "look" };
    const piece = { type: "input_json_delta", partial_json: JSON.stringify(input) };
    return block(index, { ...called, input: {} }, [piece], { ...called, input });
  },
  (w, index) => {
    const whole = { type: "invented", [w.name()]: w.value() };
    return block(index, whole, [], whole);
  },
  (w, index) => {
    const notes = { [w.name()]: w.value() };
    const text = w.text(true);
    return block(index, { type: "text", text: "", ...notes }, [{ type: "text_delta", text }], {
      ...{ type: "text", text, ...notes },
    });
  },
  (w, index) => {
    const citation = { type: "page_location", cited_text: w.text(false) };
    const whole = { type: "text", text: "", citations: [citation] };
    return block(index, { type: "text", text: "" }, [{ type: "citations_delta", citation }], whole);
  },
  (w, index) => {
    const text = w.text(true);
    const odd = { type: "odd_delta", [w.name()]: w.value() };
    return block(index, { type: "text", text: "" }, [odd, { type: "text_delta", text }], { type: "text", text });
  },
  (w, index) => block(index, { type: "redacted_thinking", data: "b3BhcXVl" }, [], { type: "text", text: w.text(true) }),
  (w) => ({ events: [{ type: "invented_event", [w.name()]: w.value() }], whole: { type: "invented" } }),
];

/** The events of an output item: its beginning, what is between, and its end, which repeats it. */
function item(index: number, begun: Block, between: Block[], whole: Block): Made {
  return {
    events: [
      { type: "response.output_item.added", output_index: index, item: begun },
      ...between.map((event) => ({ output_index: index, item_id: whole.id, ...event })),
      { type: "response.output_item.done", output_index: index, item: whole },
    ],
    whole,
  };
}

function message(w: Writer, index: number, beside: Block): Made {
  const text = w.text(true);
  const part = { type: "output_text", text, annotations: [] };
  const common = { id: `msg_${index}`, type: "message", role: "assistant", ...beside };
  const between = [
    { type: "response.content_part.added", content_index: 0, part: { ...part, text: "" } },
    { type: "response.output_text.delta", content_index: 0, delta: text },
    { type: "response.output_text.done", content_index: 0, text },
    { type: "response.content_part.done", content_index: 0, part },
  ];
  const begun = { ...common, status: "in_progress", content: [] };
  return item(index, begun, between, { ...common, status: "completed", content: [part] });
}

const RESPONSES: typeof CHAT = [
  (w, index) => message(w, index, {}),
  (w, index) => {
    const text = w.text(true);
    const common = { id: `rs_${index}`, type: "reasoning", status: "completed" };
    const between = [{ type: "response.reasoning_summary_text.delta", summary_index: 0, delta: text }];
    const summary = [{ type: "summary_text", text }];
    return item(index, { ...common, summary: [] }, between, { ...common, summary });
  },
  (w, index) => {
    const given = JSON.stringify({ q: w.text(true) });
    const common = { id: `fc_${index}`, type: "function_call", call_id: `call_${index}`, name: "look" };
    const between = [{ type: "response.function_call_arguments.delta", delta: given }];
    return item(index, { ...common, arguments: "" }, between, { ...common, arguments: given, status: "completed" });
  },
  (w, index) => message(w, index, { [w.name()]: w.value() }),
  (w, index) => {
    const whole = { id: `in_${index}`, type: "invented", [w.name()]: w.value() };
    return item(index, { id: whole.id, type: "invented" }, [], whole);
  },
  (w, index) => {
    const annotation = { type: "url_citation", url: "https://e.x", title: w.text(false) };
    const between = [{ type: "response.output_text.annotation.added", content_index: 0, annotation }];
    const whole = { id: `an_${index}`, type: "message", role: "assistant", status: "completed", content: [] };
    return item(index, whole, between, {
      ...whole,
      content: [{ type: "output_text", text: "", annotations: [annotation] }],
    });
  },
  (w) => ({ events: [{ type: "response.invented.delta", [w.name()]: w.value() }], whole: { type: "invented" } }),
];

/** The first kinds of each wire have known fields alone. */
const KNOWN_KINDS = 3;
const KINDS = { chat: CHAT, messages: MESSAGES, responses: RESPONSES };
