import type { ReactNode } from "react";
import type { PricesByClass, RequestDetail, TokensByClass } from "../../api/types.ts";
import { formatCallPrice, formatCount, formatExactCredits } from "../../format/numbers.ts";
import { Facts } from "../../ui/page.tsx";
import { Table } from "../../ui/table.tsx";
import { RequestsLink } from "./link.tsx";

const BASES = {
  reported: "Reported by the provider",
  counted: "Counted by Tollgate, because the provider sent no valid usage",
  bounded: "Capped, because the provider reported more than the request allows",
  estimated: "Estimated, because the client disconnected before any output was visible",
};

/** Cost of a request: tokens with their prices, held and charged credits, and the grants they came from. */
export function Costs({ detail }: { detail: RequestDetail }) {
  const lines = detail.prices === null ? [] : costLines(detail.tokens, detail.prices);
  return (
    <section className="stack-small">
      <h3>Cost</h3>
      {lines.length > 0 && (
        <div className="boxed">
          <Table
            caption="Token usage"
            columns={[
              { head: "Type", cell: ({ name }) => name },
              { head: "Count", right: true, cell: ({ count }) => formatCount(count) },
              { head: "Per million", right: true, cell: priceText },
              { head: "Credits", right: true, cell: ({ cost }) => formatExactCredits(cost) },
            ]}
            rows={lines}
            keyOf={({ name }) => name}
            empty={null}
            isPlain
          />
        </div>
      )}
      <Facts facts={charge(detail)} />
    </section>
  );
}

function priceText({ price, isCall }: ReturnType<typeof costLines>[number]): string {
  return isCall ? `${formatCallPrice(price)} each` : formatExactCredits(price);
}

function charge(detail: RequestDetail) {
  const { status, held, charged, price_tier: tier, basis, shortfall, draws } = detail;
  const isRunning = status === "running";
  const facts: (readonly [string, ReactNode])[] = [
    ["Held", `${formatExactCredits(held)} credits${isRunning ? "" : " until the request ended"}`],
    ["Charged", isRunning ? "Not yet" : <strong key="charged">{formatExactCredits(charged)} credits</strong>],
  ];
  if (tier !== null) facts.push(["Price tier", tierText(tier)]);
  if (basis !== null) facts.push(["Token count", BASES[basis]]);
  if (detail.retry !== null) facts.push(["Retry", retryText(detail.retry)]);
  if (detail.credited > 0) facts.push(["Refunded", `${formatExactCredits(detail.credited)} credits by an operator`]);
  if (shortfall > 0) facts.push(["Not covered", `${formatExactCredits(shortfall)} credits above the held amount`]);
  if (draws.length > 0) {
    const lines = draws.map(({ grant_id, amount }) => (
      <span key={grant_id} className="row row-tight spread">
        <span className="mono wrap-anywhere">{grant_id}</span>
        <span className="figures">{formatExactCredits(amount)}</span>
      </span>
    ));
    facts.push([isRunning ? "Held from grants" : "Charged to grants", lines]);
  }
  return facts;
}

/** Says which attempt a request repeats, and what it was charged less for it. */
function retryText({ of, credited }: NonNullable<RequestDetail["retry"]>): ReactNode {
  return (
    <span className="stack-small">
      <span>{formatExactCredits(credited)} credits less, which were charged for the broken attempt</span>
      <RequestsLink view={{ request_id: of }}>{of}</RequestsLink>
    </span>
  );
}

/** Explains which of a route's prices were charged: "prompts of more than 200,000 tokens, service tier flex". */
export function tierText(tier: NonNullable<RequestDetail["price_tier"]>): string {
  const { price_list, from, service_tier, above_prompt_tokens: above, max_prompt_tokens: max } = tier;
  const lengths = [
    ...(above === null ? [] : [`more than ${formatCount(above)}`]),
    ...(max === null ? [] : [`at most ${formatCount(max)}`]),
  ];
  return [
    ...(lengths.length === 0 ? [] : [`prompts of ${lengths.join(" and ")} tokens`]),
    ...(service_tier === null ? [] : [`service tier ${service_tier}`]),
    ...(price_list === null ? [] : [`price list ${price_list}`]),
    ...(from === null ? [] : [`in force since ${from}`]),
  ].join(", ");
}

type Class = keyof TokensByClass;

/** The label of each class of tokens, followed by its parts, and of the calls; and what a part is in, or "call". */
const LABELS: Record<Class, [label: string, partOf?: Class | "call"]> = {
  input: ["Input"],
  input_audio: ["Input audio", "input"],
  input_image: ["Input images", "input"],
  cached_input: ["Cached input"],
  cached_audio: ["Cached audio", "cached_input"],
  cache_write: ["Cache write"],
  cache_write_1h: ["Cache write, 1 hour", "cache_write"],
  output: ["Output"],
  output_audio: ["Output audio", "output"],
  output_image: ["Output images", "output"],
  reasoning: ["Reasoning"],
  requests: ["Requests", "call"],
  searches: ["Searches", "call"],
  images: ["Images", "call"],
  characters: ["Characters", "call"],
  seconds: ["Seconds", "call"],
};
const CLASSES = Object.keys(LABELS) as Class[];
const MILLION = 1_000_000;

/** Formats the prices of calls: "0.04 per image". Empty if there are none. */
export function callPricesText(prices: Partial<PricesByClass>): string {
  const ofCalls = CLASSES.flatMap((name) => {
    const [label, partOf] = LABELS[name];
    const price = prices[name] ?? 0;
    const one = label.toLowerCase().replace(/(ch)es$|s$/, "$1");
    return partOf === "call" && price > 0 ? [`${formatCallPrice(price)} per ${one}`] : [];
  });
  return ofCalls.join(", ");
}

/**
 * Cost of each class of tokens, of its parts with a price of their own, and of calls. The charge is the sum, rounded up once
 * to six decimals.
 */
export function costLines(tokens: TokensByClass, prices: PricesByClass) {
  // A part without a price of its own costs as much as its class, which contains it.
  const countOf = (name: Class) => (prices[name] === undefined ? 0 : (tokens[name] ?? 0));
  return CLASSES.map((name) => {
    const [label, partOf] = LABELS[name];
    const parts = CLASSES.filter((part) => LABELS[part][1] === name);
    const count = parts.reduce((left, part) => left - countOf(part), countOf(name));
    const price = prices[name] ?? 0;
    const isCall = partOf === "call";
    return { name: label, count, price, isCall, cost: isCall ? count * price : (count * price) / MILLION };
  }).filter(({ count }) => count > 0);
}
