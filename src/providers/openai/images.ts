import { isObject, type JsonObject, parseJson, pick } from "../../api/json.ts";
import { failureInside } from "../errors.ts";
import { usageOfResponses } from "../native/responses.ts";
import { type TaskCall, type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

/** Longest answer: ten images of 1536x1024 pixels as base64 have about 40 MB. */
export const IMAGES_BYTES_MAX = 64 * 1024 * 1024;
/** The fields of an answer that say what was made. */
const FIELDS = ["background", "output_format", "quality", "size"];

/** Yields the images of an answer, each in the caller's turn, and what it states of them. */
export async function* readImages(
  text: string,
  { inTurn }: Pick<TaskCall<"image">, "inTurn">,
  scrub: Scrub,
): AsyncGenerator<readonly UpstreamChunk[], undefined> {
  const answer = await inTurn(() => parseJson(text));
  if (!isObject(answer)) throw new UpstreamError("malformed", "The upstream's images are not a JSON object");
  const failure = failureInside(answer, scrub);
  if (failure !== undefined) throw failure;
  const images = Array.isArray(answer.data) ? answer.data.map(toImage) : [];
  if (images.length === 0) throw new UpstreamError("malformed", "The upstream's answer has no images");
  for (const image of images) yield await inTurn(() => [{ delta: { images: [image] } }]);
  const calls = { images: images.length };
  const usage = isObject(answer.usage) ? { ...usageOfResponses(answer.usage), ...calls } : undefined;
  yield [{ whole: pick(answer, FIELDS), finish_reason: "stop", usage, calls }];
}

/** Returns the fields of an image that are known. Throws UpstreamError for anything without data and address. */
function toImage(item: unknown): JsonObject {
  const image = isObject(item) ? pick(item, ["b64_json", "url", "revised_prompt"]) : {};
  const texts = Object.entries(image).filter(([, value]) => typeof value === "string" && value !== "");
  const known = Object.fromEntries(texts);
  if ("b64_json" in known || "url" in known) return known;
  throw new UpstreamError("malformed", "The upstream's answer has an image without data and address");
}
