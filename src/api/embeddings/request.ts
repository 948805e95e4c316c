import { type Static, Type } from "typebox";
import { OptionalKeys } from "../schema.ts";

/** Inputs of one request; OpenAI's own limit. */
const INPUTS_MAX = 2_048;
/** A longer vector is made by no model in use. */
const DIMENSIONS_MAX = 65_536;

const Text = Type.String({ minLength: 1 });
const TokenIds = Type.Array(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), { minItems: 1 });
export const INPUTS = {
  text: Text,
  texts: Type.Array(Text, { minItems: 1, maxItems: INPUTS_MAX }),
  tokenIds: TokenIds,
  arraysOfTokenIds: Type.Array(TokenIds, { minItems: 1, maxItems: INPUTS_MAX }),
};
const Input = Type.Union([INPUTS.text, INPUTS.texts, INPUTS.tokenIds, INPUTS.arraysOfTokenIds], {
  description: "A text, an array of texts, an array of token ids, or an array of arrays of token ids.",
});

/** Body of `POST /v1/embeddings`. */
export const EmbeddingRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "Id of a model with the capability `embeddings`." }),
  input: Input,
  ...OptionalKeys({
    dimensions: Type.Integer({
      minimum: 1,
      maximum: DIMENSIONS_MAX,
      description: "Length of each vector; default: the model's own. Only for models whose vectors can be shortened.",
    }),
    encoding_format: Type.Enum(["float", "base64"], {
      description: "`base64` is the vector as little-endian 32-bit floats. Default: `float`.",
    }),
    user: Type.String({ description: "Identifies the end user to the provider." }),
  }),
});
export type EmbeddingRequest = Static<typeof EmbeddingRequest>;

export const EmbeddingList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(
    Type.Object({
      object: Type.Literal("embedding"),
      index: Type.Integer({ minimum: 0, description: "Position of the input." }),
      embedding: Type.Union([Type.Array(Type.Number()), Type.String()], {
        description: "Numbers, or base64 if the request asks for it.",
      }),
    }),
  ),
  model: Type.String(),
  organization_id: Type.String(),
  usage: Type.Object({
    prompt_tokens: Type.Integer({ minimum: 0 }),
    total_tokens: Type.Integer({ minimum: 0 }),
    cost: Type.Number({ minimum: 0, description: "Credits." }),
  }),
});
export type EmbeddingList = Static<typeof EmbeddingList>;

export type EmbeddingInput = string | readonly number[];

/** A checked request of embeddings: all inputs are texts, or all are token ids. */
export interface EmbeddingOrder extends Omit<EmbeddingRequest, "input" | "encoding_format"> {
  inputs: readonly EmbeddingInput[];
  encoding: NonNullable<EmbeddingRequest["encoding_format"]>;
}
