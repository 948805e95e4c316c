import { once } from "../../api/answer.ts";
import { detailsOf, parseJson, pick } from "../../api/json.ts";
import type { TranscriptionRequest } from "../../api/transcription/request.ts";
import { answerObject } from "../errors.ts";
import { JSON_TYPE, readText } from "../http/answer.ts";
import type { UpstreamClient } from "../http/upstream-client.ts";
import { usageOfResponses } from "../native/responses.ts";
import { type ProviderAnswer, type TaskCall, type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

/** Sends a file to be transcribed. Rejects with UpstreamError. */
export async function transcribe(client: UpstreamClient, call: TaskCall<"transcription">): Promise<ProviderAnswer> {
  const { request, model, room } = call;
  // The runtime writes the form, with a boundary that the file does not contain.
  const form = new Response(toForm(request, model));
  const types = { accept: JSON_TYPE, contentType: form.headers.get("content-type") ?? "" };
  const answer = await client.postTask("/audio/transcriptions", Buffer.from(await form.arrayBuffer()), call, types);
  const text = await readText(answer.body, { room });
  return { chunks: once([readTranscription(text, request, client.scrub)]) };
}

/** Texts and subtitles are asked for as JSON, which states what is charged. */
const FORMATS: { [Format in string]?: string } = { text: "json", srt: "verbose_json", vtt: "verbose_json" };
const formatFor = (format: string) => FORMATS[format] ?? format;

function toForm({ file, response_format: format = "json", ...fields }: TranscriptionRequest, model: string): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries({ ...fields, model, response_format: formatFor(format) })) {
    for (const one of [value].flat()) form.append(name, String(one));
  }
  form.append("file", new File([new Uint8Array(file.bytes)], file.name, { type: file.type }));
  return form;
}

function readTranscription(
  text: string,
  { response_format: format = "json" }: Pick<TranscriptionRequest, "response_format">,
  scrub: Scrub,
): UpstreamChunk {
  const answer = answerObject(parseJson(text), scrub);
  const { text: content, usage, duration } = answer;
  const isWhole = (format !== "srt" && format !== "vtt") || Array.isArray(answer.segments);
  if (typeof content !== "string" || !isWhole) throw new UpstreamError("malformed", "The upstream transcribed nothing");
  const { seconds = duration, input_token_details, ...tokens } = detailsOf(usage);
  const { audio_tokens } = detailsOf(input_token_details);
  const hasTokens = tokens.input_tokens !== undefined;
  return {
    delta: { content },
    // Other formats have none of it, and what is counted is what the client receives.
    ...(formatFor(format) === "verbose_json" && {
      whole: pick(answer, ["task", "language", "duration", "segments", "words"]),
    }),
    finish_reason: "stop",
    ...(hasTokens && { usage: { ...usageOfResponses(tokens), input_audio_tokens: audio_tokens } }),
    ...(typeof seconds === "number" && seconds > 0 && { calls: { seconds: Math.ceil(seconds) } }),
  };
}
