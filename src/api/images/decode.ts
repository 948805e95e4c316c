import type { AnswerEnd, AnswerHead } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { compileReader } from "../known-fields.ts";
import { refused } from "../validation.ts";
import type { DecodedImages } from "../wire.ts";
import { type ImageList, ImageRequest } from "./request.ts";

const readRequest = compileReader(ImageRequest, {
  silent: ["stream", "partial_images"],
  refused: {
    stream: refused("images are not streamed here. Remove it", false),
    partial_images: refused("images are not streamed here. Remove it", 0),
  },
});

/** Reads the body of a request of images. `null` counts as absent. Throws InvalidRequestError. */
export function decodeImages(body: unknown): DecodedImages {
  const { read: request, unknown } = readRequest(body);
  return {
    kind: "image",
    request,
    // The plan computes it from the number of images.
    output: { param: "n", tokens: undefined, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    document: toImageList,
  };
}

function toImageList(head: AnswerHead, fold: AnswerFold, { usage }: AnswerEnd): ImageList {
  const { prompt_tokens: input_tokens, completion_tokens: output_tokens, total_tokens, calls, cost = 0 } = usage;
  const data = (fold.message().images ?? []) as ImageList["data"];
  const image_tokens = usage.prompt_tokens_details?.image_tokens ?? 0;
  return {
    created: head.created,
    data,
    ...fold.whole,
    model: head.model,
    organization_id: head.organizationId,
    usage: {
      images: calls?.images ?? data.length,
      input_tokens,
      input_tokens_details: { text_tokens: input_tokens - image_tokens, image_tokens },
      output_tokens,
      total_tokens,
      cost,
    },
  };
}
