import type { AnswerEnd } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { type JsonObject, objectsIn } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import { compileCheck, refused, refuseIf, wrongType } from "../validation.ts";
import type { DecodedTranscription } from "../wire.ts";
import { type FormFields, type Transcription, TranscriptionRequest, UploadedFile } from "./request.ts";

const readRequest = compileReader(TranscriptionRequest, { silent: ["stream"] });
const checkRefused = compileCheck({
  properties: { stream: refused("transcriptions are not streamed here. Remove it", "false") },
});

/** Reads the form of a request to transcribe audio. Throws InvalidRequestError. */
export function decodeTranscription(form: FormFields): DecodedTranscription {
  refuseIf(checkRefused(form));
  const { file, temperature } = form;
  refuseIf(file === undefined || file instanceof UploadedFile ? undefined : wrongType("file", "a file", file));
  const isNumber = typeof temperature === "string" && /\d/.test(temperature) && !Number.isNaN(Number(temperature));
  const number = isNumber ? Number(temperature) : temperature;
  const { read: request, unknown } = readRequest({ ...form, temperature: number });
  const { response_format: format = "json" } = request;
  return {
    kind: "transcription",
    request,
    // The plan takes the model's own maximum.
    output: { param: "file", tokens: undefined, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    ...(!format.endsWith("json") && { contentType: `${format === "vtt" ? "text/vtt" : "text/plain"}; charset=utf-8` }),
    document: (_head, fold, end) => toDocument(format, fold, end),
  };
}

function toDocument(format: string, fold: AnswerFold, { usage }: AnswerEnd): Transcription | string {
  const text = fold.message().content ?? "";
  if (format === "text") return `${text}\n`;
  if (format === "srt" || format === "vtt") return toSubtitles(format, objectsIn(fold.whole.segments));
  const { prompt_tokens, completion_tokens, total_tokens, calls, cost = 0 } = usage;
  const counts =
    calls?.seconds === undefined
      ? { type: "tokens" as const, input_tokens: prompt_tokens, output_tokens: completion_tokens, total_tokens }
      : { type: "duration" as const, seconds: calls.seconds };
  return { ...(format === "verbose_json" && fold.whole), text, usage: { ...counts, cost } };
}

function toSubtitles(format: "srt" | "vtt", segments: readonly JsonObject[]): string {
  const point = format === "srt" ? "," : ".";
  const cues = segments.map(({ start, end, text }, index) => {
    const number = format === "srt" ? `${index + 1}\n` : "";
    return `${number}${timestamp(start, point)} --> ${timestamp(end, point)}\n${String(text).trim()}\n\n`;
  });
  return (format === "vtt" ? "WEBVTT\n\n" : "") + cues.join("");
}

function timestamp(seconds: unknown, point: string): string {
  const milliseconds = Math.round(Number(seconds) * 1000) || 0;
  const part = (divisor: number, modulus: number, digits = 2) =>
    String(Math.floor(milliseconds / divisor) % modulus).padStart(digits, "0");
  return `${part(3_600_000, 100)}:${part(60_000, 60)}:${part(1000, 60)}${point}${part(1, 1000, 3)}`;
}
