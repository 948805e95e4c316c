import type { ReactNode } from "react";
import type { PricesByClass, RequestDetail, TokensByClass } from "../../api/types.ts";
import { formatCount, formatExactCredits } from "../../format/numbers.ts";
import { Facts } from "../../ui/page.tsx";
import { Table } from "../../ui/table.tsx";

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
              { head: "Tokens", right: true, cell: ({ count }) => formatCount(count) },
              { head: "Per million", right: true, cell: ({ price }) => formatExactCredits(price) },
              { head: "Credits", right: true, cell: ({ cost }) => formatExactCredits(cost) },
            ]}
            rows={lines}
            keyOf={({ name }) => name}
            empty={null}
          />
        </div>
      )}
      <Facts facts={charge(detail)} />
    </section>
  );
}

function charge(detail: RequestDetail) {
  const { status, held, charged, basis, shortfall, draws } = detail;
  const isRunning = status === "running";
  const facts: (readonly [string, ReactNode])[] = [
    ["Held", `${formatExactCredits(held)} credits${isRunning ? "" : " until the request ended"}`],
    ["Charged", isRunning ? "Not yet" : <strong key="charged">{formatExactCredits(charged)} credits</strong>],
  ];
  if (basis !== null) facts.push(["Token count", BASES[basis]]);
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

const NAMES: Record<keyof TokensByClass, string> = {
  input: "Input",
  cached_input: "Cached input",
  cache_write: "Cache write",
  output: "Output",
  reasoning: "Reasoning",
};
const MILLION = 1_000_000;

/** Cost of each class of tokens. The charge is the sum, rounded up once to six decimals. */
export function costLines(tokens: TokensByClass, prices: PricesByClass) {
  return (Object.keys(NAMES) as (keyof TokensByClass)[])
    .filter((name) => tokens[name] > 0)
    .map((name) => ({
      name: NAMES[name],
      count: tokens[name],
      price: prices[name],
      cost: (tokens[name] * prices[name]) / MILLION,
    }));
}
