import type { ReactNode } from "react";
import type { Model } from "../../api/types.ts";
import { formatCount, formatExactCredits } from "../../format/numbers.ts";
import { Badge } from "../../ui/states.tsx";

const CUTOFF_WORDS = {
  stated: "published",
  released: "release date, no cutoff published",
  assumed: "assumed",
} as const;

/** What is known of a model, in the order in which it is told alone and in comparison. */
export function factsOf(model: Model): [name: string, value: ReactNode][] {
  const { prices } = model;
  return [
    [
      "ID",
      <span key="id" className="mono wrap-anywhere">
        {model.id}
      </span>,
    ],
    ["Provider", model.owned_by],
    ["Category", model.category],
    ["Context window", `${formatCount(model.context_window)} tokens`],
    ["Max output tokens", formatCount(model.max_output_tokens)],
    ["Knowledge cutoff", `${model.cutoff_date} (${CUTOFF_WORDS[model.cutoff_basis]})`],
    ["Input, credits per million tokens", formatExactCredits(prices.input)],
    ["Cached input, credits per million tokens", formatExactCredits(prices.cached_input)],
    ["Cache write, credits per million tokens", formatExactCredits(prices.cache_write)],
    ["Output, credits per million tokens", formatExactCredits(prices.output)],
    ["Reasoning, credits per million tokens", formatExactCredits(prices.reasoning)],
    ["Capabilities", <Capabilities key="capabilities" model={model} />],
    ["Guest access", model.playground ? "Yes" : "No"],
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
