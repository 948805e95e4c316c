import { Link, useSearch } from "wouter";
import type { Model } from "../../api/types.ts";
import { formatExactCredits, formatShort } from "../../format/numbers.ts";
import { Badge } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { pathOf } from "./find.ts";
import { RouteBadge } from "./route-badge.tsx";

interface ColumnChoices {
  compared: readonly string[];
  isFull: boolean;
  withRoutes: boolean;
  onToggle: (id: string) => void;
}

export function columnsOf({ compared, isFull, withRoutes, onToggle }: ColumnChoices): Column<Model>[] {
  const columns: (Column<Model> | false)[] = [
    {
      head: "Compare",
      cell: ({ id, name }) => (
        <input
          type="checkbox"
          aria-label={`Compare ${name}`}
          checked={compared.includes(id)}
          disabled={isFull && !compared.includes(id)}
          onChange={() => onToggle(id)}
        />
      ),
    },
    { head: "Model", cell: (model) => <Name model={model} /> },
    { head: "Category", wideOnly: true, cell: ({ category }) => <Badge>{category}</Badge> },
    { head: "Context", right: true, wideOnly: true, cell: ({ context_window }) => formatShort(context_window) },
    {
      head: "Knowledge cutoff",
      wideOnly: true,
      cell: ({ cutoff_date }) => <span className="figures nowrap">{cutoff_date}</span>,
    },
    { head: "Input", right: true, cell: ({ prices }) => formatExactCredits(prices.input) },
    {
      head: "Cached input",
      right: true,
      wideOnly: true,
      cell: ({ prices }) => formatExactCredits(prices.cached_input),
    },
    { head: "Output", right: true, cell: ({ prices }) => formatExactCredits(prices.output) },
    withRoutes && {
      head: "Routes",
      wideOnly: true,
      cell: ({ routes }) => (
        <span className="row">
          {(routes ?? []).map((route) => (
            <RouteBadge key={route.route} route={route} />
          ))}
        </span>
      ),
    },
  ];
  return columns.filter((column) => column !== false);
}

function Name({ model: { id, name, deprecated } }: { model: Model }) {
  const search = useSearch();
  const path = pathOf(id);
  return (
    <span className="cell-two">
      <span className="row">
        <Link className="row-link wrap-anywhere" href={search === "" ? path : `${path}?${search}`}>
          {name}
        </Link>
        {deprecated && <Badge tone="warn">Deprecated</Badge>}
      </span>
      <span className="mono faint wrap-anywhere">{id}</span>
    </span>
  );
}
