import { type Static, Type } from "typebox";
import { type FurtherClass, type NameOf, PRICE_ROWS, type TokenClass } from "./price-classes.ts";
import { Nullable } from "./schema.ts";
import { TASK_CAPABILITIES, TASK_NAMES } from "./tasks.ts";

export const CATEGORIES = ["chat", "reasoning", "code", "vision", ...TASK_NAMES, "sandbox"] as const;
export const CAPABILITIES = [
  "chat",
  "streaming",
  "instructions",
  "tools",
  "structured_output",
  "vision",
  "reasoning",
  "prompt_caching",
  ...TASK_CAPABILITIES,
] as const;
/** Source of `cutoff_date`: stated by the maker, taken from the release date, or assumed if neither is known. */
export const CUTOFF_BASES = ["stated", "released", "assumed"] as const;

export const INPUT_MODALITIES = ["text", "image"] as const;

const Price = Type.Number({ minimum: 0 });
const PartPrice = Type.Optional(Price);
const PricesOfClasses = Object.fromEntries(
  PRICE_ROWS.map(({ name, direction }) => [name, direction ? Price : PartPrice]),
) as Record<NameOf<TokenClass>, typeof Price> & Record<NameOf<FurtherClass>, typeof PartPrice>;
const CalendarDate = Type.String({ pattern: "^\\d{4}-\\d{2}-\\d{2}$", description: "YYYY-MM-DD" });

export const Model = Type.Object({
  id: Type.String(),
  object: Type.Literal("model"),
  alias_of: Type.Optional(Type.String({ description: "The id of the model that this alias names." })),
  created: Type.Integer({ description: "Unix time in seconds of the model's release." }),
  owned_by: Type.String(),
  category: Type.Enum([...CATEGORIES]),
  name: Type.String(),
  description: Type.String(),
  capabilities: Type.Array(Type.Enum([...CAPABILITIES])),
  context_window: Type.Integer({ minimum: 1, description: "Tokens; 32768 if it is unknown." }),
  max_output_tokens: Type.Integer({ minimum: 0, description: "The model's own maximum; 0 for embeddings." }),
  dimensions: Type.Optional(
    Type.Integer({ minimum: 1, description: "Default length of the vectors of an embedding model, if known." }),
  ),
  context_length: Nullable(Type.Integer({ minimum: 1 }), {
    description: "The same as `context_window`; null if it is unknown.",
  }),
  max_input_tokens: Nullable(Type.Integer({ minimum: 1 }), {
    description: "Tokens of the longest prompt; null if they are unknown.",
  }),
  input_modalities: Type.Array(Type.Enum([...INPUT_MODALITIES])),
  supported_parameters: Type.Array(Type.String(), {
    description: "Fields of a completion request that the model takes.",
  }),
  cutoff_date: CalendarDate,
  cutoff_basis: Type.Enum([...CUTOFF_BASES]),
  pricing: Type.String(),
  pricing_details: Type.Object({
    unit: Type.Literal("credits_per_million_tokens"),
    ...PricesOfClasses,
    tiers: Type.Optional(
      Type.Array(Type.Object({ above_prompt_tokens: Type.Integer({ minimum: 0 }), ...PricesOfClasses }), {
        description: "Prices of longer prompts.",
      }),
    ),
  }),
  deprecated: Type.Boolean(),
  shutdown_date: Nullable(CalendarDate),
  replacement: Nullable(Type.String()),
});

export const ModelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(Model) });

export type Category = (typeof CATEGORIES)[number];
export type Capability = (typeof CAPABILITIES)[number];
export type CutoffBasis = (typeof CUTOFF_BASES)[number];
export type Model = Static<typeof Model>;
export type ModelList = Static<typeof ModelList>;
