import { CAPABILITIES, type Model } from "../api/model.ts";
import { PICO_PER_MICRO, type PicoCredits } from "../credits/amount.ts";
import { pricesByClass, type UnitPrices } from "../credits/price.ts";
import { type CatalogModel, takesField } from "./model.ts";

/** Fields of a completion request that some models take and others do not. */
const PARAMETERS = [
  ...["max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed", "frequency_penalty"],
  ...["presence_penalty", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"],
  ...["response_format", "reasoning_effort"],
];

/** Converts a model to its form in `GET /v1/models`. The prices are those of a short prompt first, then those of longer ones. */
export function toApiModel(model: CatalogModel): Model {
  return {
    id: model.id,
    object: "model",
    created: model.created,
    owned_by: model.ownedBy,
    category: model.category,
    name: model.name,
    description: model.description,
    capabilities: CAPABILITIES.filter((capability) => model.capabilities.has(capability)),
    context_window: model.contextWindow,
    max_output_tokens: model.maxOutputTokens,
    context_length: model.contextWindow,
    max_input_tokens: model.contextWindow,
    input_modalities: model.capabilities.has("vision") ? ["text", "image"] : ["text"],
    supported_parameters: supportedParameters(model),
    cutoff_date: model.cutoffDate,
    cutoff_basis: model.cutoffBasis,
    pricing: pricingText(model),
    pricing_details: pricingDetails(model),
    deprecated: model.deprecatedSince !== null,
    shutdown_date: model.shutdownDate,
    replacement: model.replacement,
  };
}

/** `structured_outputs` is OpenRouter's name of a `response_format` with a schema, which clients look for. */
function supportedParameters(model: CatalogModel): string[] {
  const taken = PARAMETERS.filter((field) => takesField(model, field));
  const takesSchema = taken.includes("response_format") && takesField(model, "response_format.json_schema");
  return takesSchema ? [...taken, "structured_outputs"] : taken;
}

interface PromptPrices {
  above: number;
  prices: UnitPrices;
}

/** Returns the prices by the length of a prompt, the shortest first. */
function pricesByLength({ prices, tiers = [] }: CatalogModel): readonly [PromptPrices, ...PromptPrices[]] {
  const all = [...tiers.map((tier) => tier.prices), prices];
  const [first = prices, ...longer] = all;
  return [
    { above: 0, prices: first },
    ...longer.map((own, index) => ({ above: tiers[index]?.promptTokensMax ?? 0, prices: own })),
  ];
}

function pricingDetails(model: CatalogModel): Model["pricing_details"] {
  const [{ prices }, ...longer] = pricesByLength(model);
  const listed = (own: UnitPrices) => pricesByClass(chargedPrices(model, own));
  const tiers = longer.map((tier) => ({ above_prompt_tokens: tier.above, ...listed(tier.prices) }));
  return {
    unit: "credits_per_million_tokens",
    ...listed(prices),
    ...(tiers.length > 0 && { tiers }),
  };
}

/** Leaves out the prices of calls that no route makes. */
function chargedPrices({ routes }: CatalogModel, prices: UnitPrices): UnitPrices {
  if (prices.further === undefined || routes.some(({ callsMost = 0 }) => callsMost > 0)) return prices;
  const { searches: _searches, images: _images, ...further } = prices.further;
  return { ...prices, further };
}

function pricingText(model: CatalogModel): string {
  const [{ prices }, ...longer] = pricesByLength(model);
  const text = `${figure(prices.input)} credits per million input tokens, ${figure(prices.output)} per million output tokens`;
  const tiers = longer.map(({ above, prices: own }) => {
    return `; with a prompt of more than ${above.toLocaleString("en-US")} tokens ${figure(own.input)} and ${figure(own.output)}`;
  });
  const request = prices.further?.requests;
  const fee = request === undefined ? "" : `; ${figure(request / MILLION)} per request`;
  return text + tiers.join("") + fee;
}

/** A price of a call is that of a million calls divided by a million. */
const MILLION = 1_000_000n;

/** A price in credits per million tokens, exactly, with at least two decimals: "2.00", "0.0375". */
function figure(price: PicoCredits): string {
  const fraction = (price % PICO_PER_MICRO).toString().padStart(6, "0").replace(/0+$/, "").padEnd(2, "0");
  return `${price / PICO_PER_MICRO}.${fraction}`;
}
