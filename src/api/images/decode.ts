import type { AnswerEnd, AnswerHead } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { compileReader } from "../known-fields.ts";
import { compileCheck, refused, refuseIf } from "../validation.ts";
import type { DecodedImages } from "../wire.ts";
import { UnknownFields } from "../wording.ts";
import { type ImageList, ImageRequest } from "./request.ts";

/** Fields that are refused unless they say the same as their absence. */
const STREAMING = ["stream", "partial_images"];
const readRequest = compileReader(ImageRequest, STREAMING);
const checkRefused = compileCheck({
  properties: {
    stream: refused("images are not streamed here. Remove it", false),
    partial_images: refused("images are not streamed here. Remove it", 0),
  },
});

/** Reads the body of a request of images. `null` counts as absent. Throws InvalidRequestError. */
export function decodeImages(body: unknown): DecodedImages {
  refuseIf(checkRefused(body));
  const unknown = new UnknownFields();
  return {
    kind: "image",
    request: readRequest(body, unknown),
    // The plan computes it from the number of images.
    output: { param: "n", tokens: undefined, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    document: toImageList,
  };
}

function toImageList(
  { model, organizationId, created }: AnswerHead,
  fold: AnswerFold,
  { usage }: AnswerEnd,
): ImageList {
  const {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens,
    prompt_tokens_details,
    calls,
    cost = 0,
  } = usage;
  const data = (fold.message().images ?? []) as ImageList["data"];
  const image_tokens = prompt_tokens_details?.image_tokens ?? 0;
  return {
    created,
    data,
    ...fold.whole,
    model,
    organization_id: organizationId,
    usage: {
      images: calls?.images ?? data.length,
      input_tokens: input,
      input_tokens_details: { text_tokens: input - image_tokens, image_tokens },
      output_tokens: output,
      total_tokens,
      cost,
    },
  };
}
