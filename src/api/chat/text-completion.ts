import { type Static, Type } from "typebox";
import type { AnswerHead } from "../answer.ts";
import { pick } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import { Nullable, OptionalKeys } from "../schema.ts";
import { refused } from "../validation.ts";
import type { AddEvent, DecodedCompletion, EventEncoder } from "../wire.ts";
import { CompletionUsage, FinishReason } from "./completion.ts";
import { toErrorEnvelope } from "./encode.ts";
import { CHOICES_MAX, SentRequest } from "./request.ts";

/** OpenAI's default in this API. */
const MAX_TOKENS_OF_TEXT = 16;

const SAME = [
  ...(["top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "user"] as const),
  ...(["temperature", "n", "stream", "stream_options"] as const),
];

/** Body of POST /v1/completions. `null` counts as absent. */
export const TextCompletionRequest = Type.Object({
  ...pick(SentRequest.properties, ["model", ...SAME]),
  prompt: Type.Union([Type.String(), Type.Array(Type.String(), { minItems: 1, maxItems: 1 })], {
    description: "One text.",
  }),
  ...OptionalKeys({
    suffix: Type.String({ description: "Text after the completion; only for providers that serve this API." }),
    max_tokens: Type.Integer({ minimum: 1, description: "Maximum tokens to generate; 16 by default, as at OpenAI." }),
  }),
});

const Choice = Type.Object({
  index: Type.Integer({ minimum: 0 }),
  text: Type.String(),
  logprobs: Type.Null(),
  finish_reason: Nullable(FinishReason),
});
/** Response of POST /v1/completions, and event of a streamed one. */
export const TextCompletion = Type.Object({
  id: Type.String({ pattern: "^cmpl-" }),
  object: Type.Literal("text_completion"),
  created: Type.Integer({ description: "Unix time in seconds." }),
  model: Type.String(),
  organization_id: Type.String(),
  choices: Type.Array(Choice, { maxItems: CHOICES_MAX }),
  usage: Type.Optional(Nullable(CompletionUsage)),
});
type TextCompletion = Static<typeof TextCompletion>;

const readRequest = compileReader(TextCompletionRequest, {
  refused: {
    best_of: refused("must be 1", 1),
    echo: refused("must be false", false),
    logprobs: refused("remove it"),
    prompt: { maxItems: 1, refusal: "must be one text. Send several prompts in requests of their own" },
  },
});

/** Reads the body of a completion in OpenAI's form from before chat completions. Throws InvalidRequestError. */
export function decodeTextCompletion(body: unknown): DecodedCompletion {
  const { read, unknown } = readRequest(body);
  const { model, prompt, suffix = "", max_tokens: tokens = MAX_TOKENS_OF_TEXT, ...others } = read;
  const text = typeof prompt === "string" ? prompt : prompt.join("");
  const hasUsage = others.stream_options?.include_usage === true;
  const { stream: _stream, stream_options: _options, ...sent } = others;
  return {
    kind: "completion",
    request: {
      ...others,
      model,
      max_completion_tokens: tokens,
      // The suffix is counted in the estimate; only upstreams of this wire receive it.
      messages: [{ role: "user", content: suffix === "" ? text : text + suffix }],
    },
    output: { param: "max_tokens", tokens, isLimitedBySetting: false },
    native: {
      wire: "completions",
      body: { ...sent, prompt: text, ...(suffix !== "" && { suffix }) },
      headers: {},
      needed: suffix === "" ? undefined : "suffix",
    },
    ignored: unknown.names(),
    paramOf: (param) =>
      param.startsWith("messages") ? "prompt" : param.replace("max_completion_tokens", "max_tokens"),
    events: (head, add) => textEvents(head, add, hasUsage),
    document: (head, answer, { finishReason, reasons = [], usage }) => {
      const choices = answer.choices.map(([index, one]) => {
        const { content, refusal } = one.message();
        return choiceOf(index, (content ?? "") + (refusal ?? ""), reasons[index] ?? finishReason);
      });
      return { ...headOf(head), choices, usage };
    },
  };
}

function headOf({ id, created, model, organizationId }: AnswerHead): Omit<TextCompletion, "choices"> {
  return { id: `cmpl-${id}`, object: "text_completion", created, model, organization_id: organizationId };
}

function choiceOf(index: number, text: string, finishReason: FinishReason | null): Static<typeof Choice> {
  return { index, text, logprobs: null, finish_reason: finishReason };
}

function textEvents(head: AnswerHead, add: AddEvent, includeUsage: boolean): EventEncoder {
  const common = headOf(head);
  /** With `include_usage`, every event has the field (OpenAI's documentation, "Streaming"). */
  const addEvent = (choices: readonly object[], usage: CompletionUsage | null) => {
    const counted = usage !== null || includeUsage ? { usage } : {};
    add(`data: ${JSON.stringify({ ...common, choices, ...counted })}\n\n`);
  };
  return {
    keepAlive: ": keep-alive\n\n",
    push(pieces) {
      for (const { index = 0, delta } of pieces) {
        const text = (delta?.content ?? "") + (delta?.refusal ?? "");
        if (text !== "") addEvent([choiceOf(index, text, null)], null);
      }
    },
    // Some upstreams repeat finish reasons, or send more content after them.
    close({ finishReason, reasons = [], usage }) {
      reasons.forEach((reason, index) => {
        if (index > 0 && reason !== null) addEvent([choiceOf(index, "", reason)], null);
      });
      // The first choice ends last, with the usage.
      addEvent([choiceOf(0, "", finishReason)], includeUsage ? null : usage);
      if (includeUsage) addEvent([], usage);
      add("data: [DONE]\n\n");
    },
    fail: (error) => add(`data: ${JSON.stringify(toErrorEnvelope(error))}\n\n`),
  };
}
