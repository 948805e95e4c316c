import fc from "fast-check";

/** Random answers of upstreams. Each of their texts is marked, so that it can be found in what a client receives. */

let marks = 0;
/** A text with a mark: a word, or so many that no wire has them beside its content. */
const textOf = (...lengths: number[]) =>
  fc.constantFrom(...lengths).map((times) => {
    marks += 1;
    return `⟦${marks}⟧${" some words".repeat(times * 6)}`;
  });
const text = textOf(0, 0, 1, 8, 40);
/** A text that is too long to be the token of a probability, which counts as one token. */
const longText = textOf(8, 40);

/** Fields that some wire knows, and others. */
const NAMES =
  `type id index delta content content_block text thinking signature data partial_json input name arguments item
  item_id output_index part annotation annotations logprobs audio images image_url url refusal role status object model
  reasoning reasoning_content reasoning_details tool_calls function_call function citations summary usage choices
  content_filter_results encrypted_content transcript bytes top_logprobs stop_reason stop_sequence finish_reason
  system_fingerprint service_tier action commands command operation diff toolset_name obfuscation organization_id messages extra_content invented other_text`.split(
    /\s+/,
  );
export const TYPES =
  `text thinking redacted_thinking tool_use server_tool_use text_delta thinking_delta input_json_delta
  signature_delta citations_delta message function_call custom_tool_call reasoning web_search_call shell_call apply_patch_call output_text refusal
  summary_text url_citation invented`.split(/\s+/);

const { value } = fc.letrec<{ value: unknown; object: Record<string, unknown> }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    { arbitrary: text, weight: 5 },
    { arbitrary: fc.constantFrom<unknown>(null, true, 7, ...TYPES), weight: 3 },
    { arbitrary: fc.array(tie("value"), { maxLength: 3 }), weight: 2 },
    { arbitrary: tie("object"), weight: 4 },
  ),
  object: fc
    .tuple(
      fc.dictionary(fc.oneof(fc.constantFrom(...NAMES), text), tie("value"), { maxKeys: 5 }),
      fc.record({ token: longText }, { requiredKeys: [] }),
    )
    .map(([others, token]) => ({ ...others, ...token })),
}));
export const fields = fc.dictionary(fc.constantFrom(...NAMES), value, { maxKeys: 6 });
export const typed = (types: readonly string[]) =>
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
export const chatChoice = (field: "delta" | "message") =>
  fc.tuple(fields, fields, delta, value).map(([whole, choice, inner, logprobs]) => ({
    ...whole,
    choices: [{ ...choice, index: 0, [field]: inner, logprobs }],
  }));

/** An event or an answer with up to three choices, in any order. */
export const severalChoices = (field: "delta" | "message") =>
  fc.array(fc.tuple(chatChoice(field), fc.nat(2)), { minLength: 1, maxLength: 3 }).map((several) => ({
    ...several[0]?.[0],
    choices: several.flatMap(([{ choices }, index]) => choices.map((choice) => ({ ...choice, index }))),
  }));

export const textChoice = fc.tuple(fields, fields, text, value).map(([whole, choice, said, logprobs]) => ({
  ...whole,
  choices: [{ ...choice, index: 0, text: said, logprobs }],
}));

const at = (events: fc.Arbitrary<Record<string, unknown>>, places: readonly string[]) =>
  fc.tuple(events, ...places.map(() => fc.nat(2))).map(([event, ...numbers]) => ({
    ...event,
    ...Object.fromEntries(places.map((place, nth) => [place, numbers[nth]])),
  }));
export const blockEvent = at(
  fc.oneof(
    fc
      .tuple(fields, typed(TYPES))
      .map(([rest, block]) => ({ ...rest, type: "content_block_start", content_block: block })),
    fc.tuple(fields, typed(TYPES)).map(([rest, piece]) => ({ ...rest, type: "content_block_delta", delta: piece })),
    typed(["content_block_stop", "message_delta", "content_block_invented"]),
  ),
  ["index"],
);
/** An output item, of which most have the text of their type. */
export const item = fc.oneof(
  typed(TYPES),
  fc.record({
    type: fc.constant("message"),
    content: fc.array(
      fc.record({ type: fc.constantFrom("output_text", "refusal", "invented"), text, refusal: text, invented: value }),
      { maxLength: 2 },
    ),
  }),
  fc.record({
    type: fc.constantFrom("function_call", "custom_tool_call"),
    ...{ call_id: text, name: text, arguments: text, input: text, invented: value },
  }),
  fc.record({
    type: fc.constant("reasoning"),
    summary: fc.array(fc.record({ type: fc.constant("summary_text"), text }), { maxLength: 2 }),
    ...{ id: text, encrypted_content: text, invented: value },
  }),
);
export const outputEvent = at(
  fc.oneof(
    fc
      .tuple(typed(["response.output_item.added", "response.output_item.done"]), item)
      .map(([event, one]) => ({ ...event, item: one })),
    fc
      .tuple(
        typed(
          [
            "output_text",
            "refusal",
            "reasoning_text",
            "reasoning_summary_text",
            "function_call_arguments",
            "custom_tool_call_input",
            "shell_call_command",
            "invented",
          ].map((name) => `response.${name}.delta`),
        ),
        fc.oneof(text, value),
      )
      .map(([event, piece]) => ({ ...event, delta: piece })),
    typed(["response.output_text.done", "response.content_part.done", "response.invented"]),
  ),
  ["output_index", "content_index", "command_index"],
);

/** Parts of an answer in the form of the AI SDK, which has no fields beyond these. */
const metadata = fc.record({ google: fc.record({ thoughtSignature: text, invented: text }, { requiredKeys: [] }) });
const partOf = <Type extends string>(type: Type, own: Record<string, fc.Arbitrary<unknown>>) =>
  fc.record({ type: fc.constant(type), providerMetadata: metadata, ...own });
const id = fc.constantFrom("1", "2");
const sdkWhole = [
  partOf("source", { sourceType: fc.constantFrom("url", "document"), url: text, title: text, id }),
  partOf("file", {
    mediaType: fc.constantFrom("audio/wav", "image/png"),
    data: fc.record({ type: fc.constant("data"), data: text }),
  }),
  partOf("tool-call", { toolCallId: fc.oneof(id, text), toolName: text, input: text }),
];
export const sdkPart = fc.oneof(
  partOf("text-delta", { delta: text, id }),
  ...["reasoning-start", "reasoning-end"].map((type) => partOf(type, { id })),
  partOf("reasoning-delta", { delta: text, id }),
  partOf("tool-input-start", { toolName: text, id }),
  partOf("tool-input-delta", { delta: text, id }),
  ...sdkWhole,
);
export const sdkContent = fc.oneof(partOf("text", { text }), partOf("reasoning", { text }), ...sdkWhole);

/** A response of the Gemini API, of which most have parts with the text of their kind. */
const geminiPart = fc.tuple(
  fields,
  fc.record(
    {
      ...{ text, thought: fc.boolean(), thoughtSignature: text, inlineData: fields, invented: value },
      functionCall: fc.record({ id: text, name: text, args: value, invented: value }, { requiredKeys: [] }),
    },
    { requiredKeys: [] },
  ),
);
export const geminiResponse = fc
  .tuple(fields, fields, fields, fc.array(geminiPart, { maxLength: 3 }), value)
  .map(([whole, candidate, content, parts, metadata]) => ({
    ...whole,
    candidates: [
      {
        ...candidate,
        content: { ...content, parts: parts.map(([others, known]) => ({ ...others, ...known })) },
        groundingMetadata: metadata,
      },
    ],
  }));
