import type { ReactNode } from "react";
import type { RequestDetail } from "../../api/types.ts";
import { formatCount, formatExactCredits } from "../../format/numbers.ts";
import { Facts } from "../../ui/page.tsx";
import { Table } from "../../ui/table.tsx";
import { costLines } from "./cost-lines.ts";

const BASES = {
  reported: "Reported by the provider",
  counted: "Counted: the provider sent no usable report",
  bounded: "Limited: the provider reported more than the request allows",
  estimated: "Estimated: the client disconnected before the output was visible",
};

/** Tokens by class at their prices, what was held, and what was charged on what grounds. */
export function Costs({ detail }: { detail: RequestDetail }) {
  const lines = detail.prices === null ? [] : costLines(detail.tokens, detail.prices);
  return (
    <section className="stack-small">
      <h3>Cost</h3>
      {lines.length > 0 && (
        <div className="boxed">
          <Table
            caption="Tokens by class"
            columns={[
              { head: "Tokens", cell: ({ name }) => name },
              { head: "Count", right: true, cell: ({ count }) => formatCount(count) },
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
    ["Held", `${formatExactCredits(held)} credits${isRunning ? "" : ", until it ended"}`],
    ["Charged", isRunning ? "not yet" : <strong key="charged">{formatExactCredits(charged)} credits</strong>],
  ];
  if (basis !== null) facts.push(["Token count", BASES[basis]]);
  if (detail.credited > 0) facts.push(["Given back", `${formatExactCredits(detail.credited)} credits, by hand`]);
  if (shortfall > 0) facts.push(["Not covered", `${formatExactCredits(shortfall)} credits were beyond what was held`]);
  if (draws.length > 0) {
    const lines = draws.map(({ grant_id, amount }) => (
      <span key={grant_id} className="row row-tight spread">
        <span className="mono wrap-anywhere">{grant_id}</span>
        <span className="figures">{formatExactCredits(amount)}</span>
      </span>
    ));
    facts.push([isRunning ? "Held of" : "Taken from", lines]);
  }
  return facts;
}
