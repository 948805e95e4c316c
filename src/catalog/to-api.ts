import { CAPABILITIES, type Model } from "../api/model.ts";
import { PICO_PER_MICRO, type PicoCredits } from "../credits/amount.ts";
import { pricePerMillion } from "../credits/price.ts";
import type { CatalogModel } from "./model.ts";

/** Converts a model to its form in `GET /v1/models`. `pricing_details` has the prices of a short prompt; `pricing` adds those of a long one. */
export function toApiModel(model: CatalogModel): Model {
  const usual = model.shortPrompt?.prices ?? model.prices;
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
    ...(model.embedding?.dimensions !== undefined && { dimensions: model.embedding.dimensions }),
    cutoff_date: model.cutoffDate,
    cutoff_basis: model.cutoffBasis,
    pricing: pricingText(model),
    pricing_details: {
      unit: "credits_per_million_tokens",
      input: pricePerMillion(usual.input),
      cached_input: pricePerMillion(usual.cachedInput),
      output: pricePerMillion(usual.output),
    },
    deprecated: model.deprecatedSince !== null,
    shutdown_date: model.shutdownDate,
    replacement: model.replacement,
  };
}

function pricingText(model: CatalogModel): string {
  const { prices, shortPrompt } = model;
  const usual = shortPrompt?.prices ?? prices;
  if (model.embedding !== undefined) return `${figure(usual.input)} credits per million input tokens`;
  const text = `${figure(usual.input)} credits per million input tokens, ${figure(usual.output)} per million output tokens`;
  if (shortPrompt === undefined) return text;
  const bound = shortPrompt.promptTokensMax.toLocaleString("en-US");
  return `${text}; with a prompt of more than ${bound} tokens ${figure(prices.input)} and ${figure(prices.output)}`;
}

/** A price in credits per million tokens, exactly, with at least two decimals: "2.00", "0.0375". */
function figure(price: PicoCredits): string {
  const fraction = (price % PICO_PER_MICRO).toString().padStart(6, "0").replace(/0+$/, "").padEnd(2, "0");
  return `${price / PICO_PER_MICRO}.${fraction}`;
}
