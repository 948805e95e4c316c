import type { ReactNode } from "react";
import type { Model } from "../../api/types.ts";
import { formatCount, formatExactCredits } from "../../format/numbers.ts";
import { Badge } from "../../ui/states.tsx";

const CUTOFF_WORDS = {
  stated: "as its maker says",
  released: "its release: no cut-off is stated",
  assumed: "assumed",
} as const;

/** What is known of a model, in the order in which it is told alone and in comparison. */
export function factsOf(model: Model): [name: string, value: ReactNode][] {
  const { prices } = model;
  return [
    [
      "Id",
      <span key="id" className="mono wrap-anywhere">
        {model.id}
      </span>,
    ],
    ["Made by", model.owned_by],
    ["Category", model.category],
    ["Context window", `${formatCount(model.context_window)} tokens`],
    ["Longest answer", `${formatCount(model.max_output_tokens)} tokens`],
    ["Knows until", `${model.cutoff_date} (${CUTOFF_WORDS[model.cutoff_basis]})`],
    ["Input, credits per million", formatExactCredits(prices.input)],
    ["Cached input, credits per million", formatExactCredits(prices.cached_input)],
    ["Cache write, credits per million", formatExactCredits(prices.cache_write)],
    ["Output, credits per million", formatExactCredits(prices.output)],
    ["Reasoning, credits per million", formatExactCredits(prices.reasoning)],
    ["Can", <Capabilities key="can" model={model} />],
    ["Open to guests", model.playground ? "yes" : "no"],
  ];
}

function Capabilities({ model: { capabilities } }: { model: Model }) {
  return (
    <span className="row">
      {capabilities.map((capability) => (
        <Badge key={capability}>{capability.replaceAll("_", " ")}</Badge>
      ))}
    </span>
  );
}
