import { useQuery } from "@tanstack/react-query";
import { MessagesSquare } from "lucide-react";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { serviceFacts } from "../../api/queries.ts";
import type { Model } from "../../api/types.ts";
import { formatCount, formatExactCredits } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Card, Facts } from "../../ui/page.tsx";
import { Badge, Note } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { callPricesText } from "../requests/costs.tsx";
import { healthDetails, isHeldBack, ResumeRoute, type Route, RouteBadge } from "./health.tsx";
import { ModelLatency } from "./latency.tsx";
import { ModelUsage } from "./usage.tsx";

/** Details of a model: description, facts, and routes with their health. */
export function ModelPanel({ model, onClose }: { model: Model; onClose: () => void }) {
  const { may } = useAccess();
  const { id, name, description, deprecated, shutdown_date, replacement, routes, capabilities } = model;
  const isOpenToGuests = useIsOpenToGuests();
  return (
    <Dialog title={name} side onClose={onClose}>
      <div className="dialog-body">
        <p className="soft">{description}</p>
        {deprecated && (
          <Note tone="warn">
            Deprecated.{shutdown_date !== null && ` Shuts down on ${shutdown_date}.`}
            {replacement !== null && ` Use ${replacement} instead.`}
          </Note>
        )}
        <div className="row">
          {may("playground:use") && capabilities.includes("chat") && (
            <Link className="button button-main" href={`/playground?model=${encodeURIComponent(id)}`}>
              <MessagesSquare size={15} aria-hidden="true" />
              <span>Try in playground</span>
            </Link>
          )}
          <CopyIcon text={id} label="Copy ID" />
        </div>
        <Facts facts={factsOf(model, isOpenToGuests).filter(([, value]) => value !== NO_VALUE)} />
        <PriceHistory model={model} />
        {may("usage:read") && <ModelUsage id={id} />}
        {may("upstreams:read") && <ModelLatency key={id} model={model} />}
        {routes !== null && <Routes routes={routes} />}
      </div>
    </Dialog>
  );
}

/** Routes with their health. Those that are not called at present can be resumed. */
function Routes({ routes }: { routes: readonly Route[] }) {
  const nowMs = useNow();
  return (
    <section className="stack-small">
      <h3>Routes</h3>
      <ol className="steps">
        {routes.map((route) => (
          <li key={route.route}>
            <span className="cell-two">
              <span className="mono wrap-anywhere">{route.route}</span>
              <span className="small faint">{healthDetails(route, nowMs)}</span>
            </span>
            <RouteBadge route={route} />
            {isHeldBack(route, nowMs) && <ResumeRoute route={route} />}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Dated prices, the oldest first; nothing for a model whose price never changed. */
function PriceHistory({ model: { price_history: history } }: { model: Model }) {
  const nowMs = useNow();
  if (history.length < 2) return null;
  const hasCalls = history.some(({ prices }) => callPricesText(prices) !== "");
  const current = history.findLastIndex(({ from }) => from === null || Date.parse(from) <= nowMs);
  return (
    <section className="stack-small">
      <h3>Prices, in credits per million tokens</h3>
      <div className="table-scroll">
        <table className="table">
          <thead>
            <tr>
              {["From", "Input", "Cached input", "Output", ...(hasCalls ? ["Other prices"] : [])].map((head) => (
                <th key={head} scope="col" className={head === "From" ? undefined : "right"}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {history.map(({ from, prices }, index) => (
              <tr key={from}>
                <td>
                  <span className="row">
                    {from === null ? "Start" : formatDate(from)}
                    {index === current && <Badge tone="good">Now</Badge>}
                    {index > current && <Badge tone="accent">Planned</Badge>}
                  </span>
                </td>
                {[prices.input, prices.cached_input, prices.output].map((price, column) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: the columns never change
                  <td key={column} className="right figures">
                    {formatExactCredits(price)}
                  </td>
                ))}
                {hasCalls && <td className="right figures">{otherPricesText(prices)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** Compares models side by side. */
export function Compare({ models, onClear }: { models: readonly Model[]; onClear: () => void }) {
  const isOpenToGuests = useIsOpenToGuests();
  if (models.length === 0) return null;
  if (models.length === 1) return <p className="soft">Select another model to compare with {models[0]?.name}.</p>;
  const compared = models.map((model) => ({ model, facts: factsOf(model, isOpenToGuests) }));
  const names = compared[0]?.facts.map(([name]) => name) ?? [];
  const isPriced = (index: number) => compared.some(({ facts }) => facts[index]?.[1] !== NO_VALUE);
  return (
    <Card title="Comparison" flush actions={<Button onClick={onClear}>Clear</Button>}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard */}
      <section className="table-scroll" tabIndex={0} aria-label="Model comparison">
        <table className="table compare">
          <caption className="visually-hidden">Model comparison</caption>
          <thead>
            <tr>
              <td />
              {compared.map(({ model }) => (
                <th key={model.id} scope="col">
                  {model.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {names.map(
              (name, index) =>
                isPriced(index) && (
                  <tr key={name}>
                    <th scope="row">{name}</th>
                    {compared.map(({ model, facts }) => (
                      <td key={model.id}>{facts[index]?.[1]}</td>
                    ))}
                  </tr>
                ),
            )}
          </tbody>
        </table>
      </section>
    </Card>
  );
}

/** States how reliable the date of a model's knowledge is: most providers publish none. */
export function cutoffLabel({ cutoff_date: date, cutoff_basis: basis }: Model): string {
  if (basis === "assumed") return "Not published";
  return basis === "stated" ? formatDate(date) : `Not published; released ${formatDate(date)}`;
}

const NO_VALUE = "–";

/** Formats the price of a class of tokens; a dash for a model that is charged by calls alone, such as by the image. */
export function tokenPriceText({ prices, pricing_details }: Model, name: keyof Model["prices"]): string {
  const isFree = prices.input + prices.output === 0;
  return isFree && hasOtherPrices({ pricing_details }) ? NO_VALUE : formatExactCredits(prices[name] ?? 0);
}

/** Returns true if calls of a model have a price, such as each image. */
export function hasOtherPrices({ pricing_details }: Pick<Model, "pricing_details">): boolean {
  return callPricesText(pricing_details) !== "";
}

/** Formats the prices of calls; a dash if there are none. */
export function otherPricesText(prices: Parameters<typeof callPricesText>[0]): string {
  return callPricesText(prices) || NO_VALUE;
}

/** Returns true if guests can use the playground, so that it matters which models are open to them. */
function useIsOpenToGuests(): boolean {
  return useQuery(serviceFacts).data?.guest_playground.open === true;
}

/** Lists the facts about a model, in display order. */
function factsOf(model: Model, isOpenToGuests: boolean): [name: string, value: ReactNode][] {
  const facts: [name: string, value: ReactNode][] = [
    [
      "ID",
      <span key="id" className="mono wrap-anywhere">
        {model.id}
      </span>,
    ],
    ["Provider", model.owned_by],
    ["Category", model.category],
    ["Context window", model.context_length === null ? "Unknown" : `${formatCount(model.context_length)} tokens`],
    ["Max output tokens", model.max_output_tokens === 0 ? NO_VALUE : formatCount(model.max_output_tokens)],
    ["Knowledge cutoff", cutoffLabel(model)],
    ["Input, credits per million tokens", tokenPriceText(model, "input")],
    ["Cached input, credits per million tokens", tokenPriceText(model, "cached_input")],
    ["Cache write, credits per million tokens", tokenPriceText(model, "cache_write")],
    ["Output, credits per million tokens", tokenPriceText(model, "output")],
    ["Reasoning, credits per million tokens", tokenPriceText(model, "reasoning")],
    ["Other prices, credits", otherPricesText(model.pricing_details)],
    ["Capabilities", <Capabilities key="capabilities" model={model} />],
  ];
  if (isOpenToGuests) facts.push(["Guest access", model.playground ? "Yes" : "No"]);
  return facts;
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
