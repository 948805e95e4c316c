import { isObject, type JsonObject, parseJson, pick } from "../../api/json.ts";
import { answerObject } from "../errors.ts";
import { readText } from "../http/answer.ts";
import type { UpstreamClient } from "../http/upstream-client.ts";
import { usageOfResponses } from "../native/responses.ts";
import { type ProviderAnswer, type TaskCall, type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

/** Longest answer: ten images of 1536x1024 pixels as base64 have about 40 MB. */
const IMAGES_BYTES_MAX = 64 * 1024 * 1024;
/** The fields of an answer that say what was made. */
const FIELDS = ["background", "output_format", "quality", "size"];

/** Sends a request of images. Rejects with UpstreamError. */
export async function makeImages(client: UpstreamClient, call: TaskCall<"image">): Promise<ProviderAnswer> {
  const body = JSON.stringify({ ...call.request, model: call.model });
  const answer = await client.postTask("/images/generations", body, call);
  const text = await readText(answer.body, { bytesMax: IMAGES_BYTES_MAX, room: call.room });
  return { chunks: readImages(text, call, client.scrub) };
}

/** Yields the images of an answer, each in the caller's turn, and what it states of them. */
async function* readImages(
  text: string,
  { inTurn }: Pick<TaskCall<"image">, "inTurn">,
  scrub: Scrub,
): AsyncGenerator<readonly UpstreamChunk[], undefined> {
  const answer = answerObject(await inTurn(() => parseJson(text)), scrub);
  const images = Array.isArray(answer.data) ? answer.data.map(toImage) : [];
  if (images.length === 0) throw new UpstreamError("malformed", "The upstream's answer has no images");
  for (const image of images) yield await inTurn(() => [{ delta: { images: [image] } }]);
  const calls = { images: images.length };
  const usage = isObject(answer.usage) ? { ...usageOfResponses(answer.usage), ...calls } : undefined;
  yield [{ whole: pick(answer, FIELDS), finish_reason: "stop", usage, calls }];
}

function toImage(item: unknown): JsonObject {
  const image = isObject(item) ? pick(item, ["b64_json", "url", "revised_prompt"]) : {};
  const texts = Object.entries(image).filter(([, value]) => typeof value === "string" && value !== "");
  const known = Object.fromEntries(texts);
  if ("b64_json" in known || "url" in known) return known;
  throw new UpstreamError("malformed", "The upstream's answer has an image without data and address");
}
