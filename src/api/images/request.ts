import { type Static, Type } from "typebox";
import { OptionalKeys, TokenCount } from "../schema.ts";

/** OpenAI's own limits. */
const PROMPT_CHARACTERS_MAX = 32_000;
const IMAGES_MAX = 10;

/** Body of `POST /v1/images/generations`. */
export const ImageRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "Id of a model with the capability `images`." }),
  prompt: Type.String({ minLength: 1, maxLength: PROMPT_CHARACTERS_MAX }),
  ...OptionalKeys({
    n: Type.Integer({ minimum: 1, maximum: IMAGES_MAX, description: "Number of images; 1 by default." }),
    size: Type.String({
      pattern: "^(auto|[1-9]\\d{1,4}x[1-9]\\d{1,4})$",
      description: "Width and height in pixels, such as `1024x1024`, or `auto`, which is the default.",
    }),
    quality: Type.Enum(["auto", "low", "medium", "high", "xhigh", "max", "standard", "hd"], {
      description: "Which ones there are depends on the model; `auto` by default.",
    }),
    response_format: Type.Enum(["url", "b64_json"], {
      description: "For models that can return addresses of images. An address belongs to the provider, and expires.",
    }),
    background: Type.Enum(["auto", "transparent", "opaque"]),
    output_format: Type.Enum(["png", "jpeg", "webp"]),
    output_compression: Type.Integer({ minimum: 0, maximum: 100, description: "In percent, for `jpeg` and `webp`." }),
    moderation: Type.Enum(["auto", "low"]),
    style: Type.Enum(["vivid", "natural"]),
    safety_identifier: Type.String(),
    user: Type.String({ description: "Identifies the end user to the provider." }),
  }),
});
export type ImageRequest = Static<typeof ImageRequest>;

export const ImageList = Type.Object({
  created: Type.Integer({ description: "Unix time in seconds." }),
  data: Type.Array(
    Type.Object(OptionalKeys({ b64_json: Type.String(), url: Type.String(), revised_prompt: Type.String() }), {
      description: "An image, as the provider returned it.",
    }),
  ),
  ...OptionalKeys({
    background: Type.String(),
    output_format: Type.String(),
    quality: Type.String(),
    size: Type.String(),
  }),
  model: Type.String(),
  organization_id: Type.String(),
  usage: Type.Object({
    images: Type.Integer({ minimum: 0 }),
    input_tokens: TokenCount,
    input_tokens_details: Type.Object({ text_tokens: TokenCount, image_tokens: TokenCount }),
    output_tokens: TokenCount,
    total_tokens: TokenCount,
    cost: Type.Number({ minimum: 0, description: "Credits." }),
  }),
});
export type ImageList = Static<typeof ImageList>;
