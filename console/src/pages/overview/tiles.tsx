import type { ReactNode } from "react";
import type { Overview } from "../../api/types.ts";
import {
  countOf,
  formatCount,
  formatCredits,
  formatDuration,
  formatLasting,
  formatShare,
} from "../../format/numbers.ts";
import { Skeleton, titleOfCode } from "../../ui/states.tsx";
import { Credits } from "../../ui/values.tsx";
import { reportedCost } from "./figures.ts";

/** Key figures of the period. */
export function Tiles({ figures }: { figures: Overview | undefined }) {
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
        note={`${formatCredits(credits.spent_per_day)} per day over the last 7 days`}
      />
      {cost !== null && (
        <Tile
          name="Provider cost"
          figure={cost.amount}
          note={`${cost.spent} credits charged where the cost is known`}
        />
      )}
      <Tile
        name="Requests"
        figure={formatCount(totals.requests)}
        note={`${countOf(totals.input_tokens + totals.output_tokens, "token")}`}
      />
      <Tile
        name="Failed"
        figure={totals.requests === 0 ? "–" : formatShare(totals.errors / totals.requests)}
        note={`${countOf(totals.errors, "request")}`}
      />
      <Tile
        name="Refused"
        figure={formatCount(totals.refused)}
        note={refusals[0] === undefined ? "No refused requests" : `Most often: ${titleOfCode(refusals[0].code)}`}
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

function Tile({ name, figure, note }: { name: string; figure: ReactNode; note: ReactNode }) {
  return (
    <div className="tile">
      <dt>{name}</dt>
      <dd className="figure">{figure}</dd>
      <dd className="small faint">{note}</dd>
    </div>
  );
}
