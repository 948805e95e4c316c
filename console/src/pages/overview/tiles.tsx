import type { ReactNode } from "react";
import type { Overview } from "../../api/types.ts";
import { countOf, formatCount, formatDuration, formatLasting, formatShare } from "../../format/numbers.ts";
import { Skeleton, titleOfCode } from "../../ui/states.tsx";
import { Credits } from "../../ui/values.tsx";
import { RequestsLink } from "../requests/link.tsx";
import type { View } from "../requests/view.ts";
import { reportedCost } from "./figures.ts";

interface TilesProps {
  figures: Overview | undefined;
  /** Totals of the days before, as many as the period has; undefined while they load, null if that failed. */
  before: Overview["totals"] | undefined | null;
  /** The view of the requests that the figures count. */
  view: Partial<View>;
}

/** Key figures of the period, which lead to the requests behind them. */
export function Tiles({ figures, before, view }: TilesProps) {
  if (figures === undefined) {
    const names = ["Available credits", "Spent", "Requests", "Failed", "Refused", "Time to first token"];
    return (
      <dl className="tiles" aria-busy="true">
        {names.map((name) => (
          <Tile key={name} name={name} figure={<Skeleton width="6rem" />} note={<Skeleton width="8rem" />} />
        ))}
      </dl>
    );
  }
  const { credits, totals, organizations, refusals } = figures;
  const cost = reportedCost(totals);
  const first = totals.first_token_ms;
  const compare = (name: "spent" | "requests") =>
    before === null ? "No comparison available" : changeLabel(totals[name], before?.[name]);
  return (
    <dl className="tiles">
      <Tile
        name="Available credits"
        figure={<Credits value={credits.available} />}
        note={organizations === null ? formatLasting(credits.days_left) : solvency(organizations)}
      />
      <Tile
        name="Spent"
        figure={<Credits value={totals.spent} />}
        note={compare("spent")}
        behind={{ ...view, sort: "charged" }}
      />
      {cost !== null && (
        <Tile
          name="Provider cost"
          figure={cost.amount}
          note={`${cost.spent} credits charged where the cost is known`}
        />
      )}
      <Tile name="Requests" figure={formatCount(totals.requests)} note={compare("requests")} behind={view} />
      <Tile
        name="Failed"
        figure={totals.requests === 0 ? "–" : formatShare(totals.errors / totals.requests)}
        note={`${countOf(totals.errors, "request")}`}
        behind={{ ...view, status: "failed" }}
      />
      <Tile
        name="Refused"
        figure={formatCount(totals.refused)}
        note={refusals[0] === undefined ? "No refused requests" : `Most often: ${titleOfCode(refusals[0].code)}`}
        behind={{ ...view, status: "refused" }}
      />
      <Tile
        name="Time to first token"
        figure={first === null ? "–" : formatDuration(first.p50)}
        note={first === null ? "No answers with tokens" : `Median; p95 ${formatDuration(first.p95)}`}
      />
    </dl>
  );
}

/** Says how many organizations cannot pay: the credits of one pay for no other. */
function solvency({ active, out_of_credits: empty }: NonNullable<Overview["organizations"]>): string {
  if (empty === 0) return `In ${countOf(active, "organization")}, all with credits`;
  return `${formatCount(empty)} of ${countOf(active, "organization")} out of credits`;
}

/** Compares a figure with that of the days before. */
export function changeLabel(now: number, before: number | undefined): string {
  if (before === undefined) return "Comparing …";
  if (before === 0) return now === 0 ? "Same as the previous period" : "None in the previous period";
  const change = now / before - 1;
  if (change === 0) return "Same as the previous period";
  return `${formatShare(Math.abs(change))} ${change > 0 ? "more" : "less"} than in the previous period`;
}

interface TileProps {
  name: string;
  figure: ReactNode;
  note: ReactNode;
  /** The requests that the figure counts. */
  behind?: Partial<View>;
}

function Tile({ name, figure, note, behind }: TileProps) {
  return (
    <div className="tile">
      <dt>{name}</dt>
      <dd className="figure">{behind === undefined ? figure : <RequestsLink view={behind}>{figure}</RequestsLink>}</dd>
      <dd className="small faint">{note}</dd>
    </div>
  );
}
