import { type Static, Type } from "typebox";
import type { AnswerEnd, AnswerHead, NativeEvent } from "../answer.ts";
import { type AnswerFold, joinCall } from "../answer-fold.ts";
import type { CompletionUsage, Delta } from "../chat/completion.ts";
import type { ToolCall } from "../chat/request.ts";
import { argumentsObject, citedSources, detailsOf, isObject, type JsonObject, objectsIn } from "../json.ts";
import { TokenCount } from "../schema.ts";
import type { AddEvent, EventEncoder } from "../wire.ts";
import { errorOf } from "./errors.ts";
import type { GeminiPart } from "./request.ts";
import { GEMINI_FORMAT, signatureOfCall, signatureOfDetail, TEXT_SIGNATURE_ID } from "./signatures.ts";

const Candidate = Type.Object({
  content: Type.Object({ role: Type.Literal("model"), parts: Type.Array(Type.Unknown()) }),
  finishReason: Type.Optional(Type.String({ description: "STOP, MAX_TOKENS or SAFETY; from Google, any of its own." })),
  index: Type.Literal(0),
  groundingMetadata: Type.Optional(Type.Object({ groundingChunks: Type.Optional(Type.Array(Type.Unknown())) })),
});
const UsageMetadata = Type.Object({
  promptTokenCount: TokenCount,
  cachedContentTokenCount: Type.Optional(TokenCount),
  candidatesTokenCount: TokenCount,
  thoughtsTokenCount: Type.Optional(TokenCount),
  totalTokenCount: TokenCount,
  cost: Type.Optional(Type.Number({ minimum: 0, description: "Charged credits." })),
});

/** Response of `generateContent`, and each part of a stream; the last one has `finishReason` and `usageMetadata`. */
export const GenerateContentResponse = Type.Object({
  candidates: Type.Array(Candidate, { maxItems: 1, description: "Empty where Google has blocked the prompt." }),
  usageMetadata: Type.Optional(UsageMetadata),
  modelVersion: Type.String(),
  responseId: Type.String(),
});
type GenerateContentResponse = Static<typeof GenerateContentResponse>;

const FINISH_REASONS = { stop: "STOP", length: "MAX_TOKENS", tool_calls: "STOP", content_filter: "SAFETY" } as const;

/** Returns the body of a complete answer. */
export function toGenerated(
  head: AnswerHead,
  answer: Pick<AnswerFold, "message" | "document">,
  { finishReason, usage }: AnswerEnd,
): object {
  if (answer.document !== undefined) return passedOn(head, answer.document, usage);
  const message = answer.message();
  const { tool_calls: calls = [], annotations } = message;
  const parts = [...partsOf(message), ...calls.map(toCallPart)];
  const end = { finishReason, usage, sources: sourcesOf(annotations) };
  return responseOf(head, parts.length > 0 ? parts : [{ text: "" }], end);
}

function passedOn({ id, model }: AnswerHead, response: JsonObject, usage?: CompletionUsage): object {
  const candidates = objectsIn(response.candidates).map((candidate) => {
    return { ...candidate, content: { role: "model", ...detailsOf(candidate.content) }, index: 0 };
  });
  const usageMetadata = usage && toUsageMetadata(usage);
  return { ...response, candidates, ...(usageMetadata && { usageMetadata }), modelVersion: model, responseId: id };
}

type End = Pick<AnswerEnd, "usage" | "finishReason"> & { sources: object[] };

function responseOf({ id, model }: AnswerHead, parts: GeminiPart[], end?: End): GenerateContentResponse {
  return {
    candidates: [
      {
        content: { role: "model", parts },
        index: 0,
        ...(end && { finishReason: FINISH_REASONS[end.finishReason] }),
        ...(end && end.sources.length > 0 && { groundingMetadata: { groundingChunks: end.sources } }),
      },
    ],
    ...(end && { usageMetadata: toUsageMetadata(end.usage) }),
    modelVersion: model,
    responseId: id,
  };
}

function toUsageMetadata(usage: CompletionUsage): Static<typeof UsageMetadata> {
  const { prompt_tokens, completion_tokens, total_tokens, cost } = usage;
  const thoughts = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return {
    promptTokenCount: prompt_tokens,
    ...(cached > 0 && { cachedContentTokenCount: cached }),
    candidatesTokenCount: completion_tokens - thoughts,
    ...(thoughts > 0 && { thoughtsTokenCount: thoughts }),
    totalTokenCount: total_tokens,
    ...(cost !== undefined && { cost }),
  };
}

type Said = Pick<Delta, "content" | "refusal" | "reasoning_content" | "reasoning_details" | "images" | "audio">;

function partsOf(said: Said): GeminiPart[] {
  const { content, refusal, reasoning_content: thought, reasoning_details: details = [], images, audio } = said;
  const ofText = details.findLast(({ format, id }) => format === GEMINI_FORMAT && id === TEXT_SIGNATURE_ID);
  const media = [...objectsIn(images).map((image) => imageOf(image.image_url)), audioOf(audio)];
  return [
    ...(thought ? [{ text: thought, thought: true }] : []),
    // The signature of a call is sent with the call, and that of a text with the text.
    ...details.flatMap((detail) =>
      detail.format === GEMINI_FORMAT && detail.id !== undefined
        ? []
        : [{ text: "", thought: true, thoughtSignature: signatureOfDetail(detail) }],
    ),
    ...(content || ofText
      ? [{ text: content ?? "", ...(ofText && { thoughtSignature: signatureOfDetail(ofText) }) }]
      : []),
    ...(refusal ? [{ text: refusal }] : []),
    ...media.filter((part) => part !== undefined),
  ];
}

const DATA_URL = /^data:([^;,]+);base64,/;

function imageOf(image: unknown): GeminiPart | undefined {
  const url = isObject(image) && typeof image.url === "string" ? image.url : "";
  const [head = "", mimeType = ""] = DATA_URL.exec(url.slice(0, 128)) ?? [];
  if (head !== "") return { inlineData: { mimeType, data: url.slice(head.length) } };
  return url === "" ? undefined : { fileData: { mimeType: "image/png", fileUri: url } };
}

function audioOf(audio: unknown): GeminiPart | undefined {
  if (!isObject(audio) || typeof audio.data !== "string") return undefined;
  const format = typeof audio.format === "string" ? audio.format : "wav";
  return { inlineData: { mimeType: `audio/${format}`, data: audio.data } };
}

function toCallPart({ id, function: { name, arguments: text }, extra_content: extra }: ToolCall): GeminiPart {
  return {
    functionCall: { id, name, args: argumentsObject(text) },
    ...(extra !== undefined && { thoughtSignature: signatureOfCall(id, extra) }),
  };
}

function sourcesOf(annotations?: readonly unknown[]): object[] {
  return citedSources(annotations).map(({ url, title }) => ({ web: { uri: url, ...(title ? { title } : {}) } }));
}

/** Returns the encoder of a streamed answer: of server-sent events, or of one list in JSON. */
export function geminiEvents(head: AnswerHead, add: AddEvent, isEvents: boolean): EventEncoder {
  const calls = new Map<number, ToolCall>();
  const sources: object[] = [];
  let hasBegun = false;
  let ending: JsonObject | undefined;
  const addResponse = (response: object) => {
    const json = JSON.stringify(response);
    add(isEvents ? `data: ${json}\r\n\r\n` : `${hasBegun ? "," : "["}${json}\r\n`);
    hasBegun = true;
  };
  const addLast = (response: object) => {
    addResponse(response);
    if (!isEvents) add("]");
  };
  /** Passes a response of the upstream on, but for the last one, which waits for the charge. */
  const passOn = ({ data }: NativeEvent) => {
    const isEnd = data.promptFeedback !== undefined || objectsIn(data.candidates).some((one) => one.finishReason);
    if (isEnd && ending === undefined) ending = data;
    else if (objectsIn(data.candidates).length > 0) addResponse(passedOn(head, data));
  };
  return {
    // Empty lines are allowed in both formats. Google's clients expect events to begin with `data`.
    keepAlive: "\r\n",
    contentType: isEvents ? undefined : "application/json; charset=utf-8",
    push(pieces) {
      for (const { delta, native } of pieces) {
        if (native !== undefined) native.forEach(passOn);
        else if (delta !== undefined) {
          const parts = partsOf(delta);
          if (parts.length > 0) addResponse(responseOf(head, parts));
          for (const call of delta.tool_calls ?? []) joinCall(calls, call);
          sources.push(...sourcesOf(delta.annotations));
        }
      }
    },
    close({ finishReason, usage }) {
      if (ending !== undefined) return addLast(passedOn(head, ending, usage));
      // Calls are whole parts on this wire, and Google sends them with the end of the answer.
      const parts = calls.size > 0 ? [...calls.values()].map(toCallPart) : [{ text: "" }];
      addLast(responseOf(head, parts, { finishReason, usage, sources }));
    },
    fail: (error) => addLast(errorOf(error)),
  };
}
