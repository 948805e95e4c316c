import { Columns3 } from "lucide-react";
import { useState } from "react";
import { Link, useSearch } from "wouter";
import type { RequestSummary } from "../../api/types.ts";
import { ModelName } from "../../charts/model-color.tsx";
import { formatCount, formatDuration } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Checks } from "../../ui/field.tsx";
import { readStored, store } from "../../ui/stored.ts";
import type { Column } from "../../ui/table.tsx";
import { Ago, Credits } from "../../ui/values.tsx";
import { StatusBadge } from "./status.tsx";
import { inputOf, outputOf } from "./view.ts";

/** Columns by their names in the browser's storage. The first one, which leads to the request, is always shown. */
const COLUMNS = {
  status: { head: "Status", cell: (row) => <Outcome request={row} /> },
  token: { head: "Token", cell: (row) => <Caller request={row} /> },
  route: { head: "Route", cell: ({ route }) => <span className="mono small wrap-anywhere">{route ?? "–"}</span> },
  input: { head: "Input", right: true, cell: ({ tokens }) => formatCount(inputOf(tokens)) },
  output: { head: "Output", right: true, cell: ({ tokens }) => formatCount(outputOf(tokens)) },
  first_token: { head: "First token", right: true, cell: ({ first_token_ms }) => durationOf(first_token_ms) },
  duration: { head: "Duration", right: true, cell: ({ duration_ms }) => durationOf(duration_ms) },
  held: { head: "Held", right: true, cell: ({ held }) => <Credits value={held} /> },
  charged: { head: "Charged", right: true, cell: ({ charged }) => <Credits value={charged} /> },
  provider_cost: {
    head: "Provider cost",
    right: true,
    cell: ({ provider_cost }) => <span className="figures">{provider_cost ?? "–"}</span>,
  },
  user: { head: "User", cell: ({ user }) => <span className="wrap-anywhere">{user ?? "–"}</span> },
  metadata: { head: "Metadata", cell: ({ metadata }) => <Metadata values={metadata ?? {}} /> },
  request_id: {
    head: "Request ID",
    cell: ({ request_id }) => <span className="mono small wrap-anywhere">{request_id}</span>,
  },
} satisfies Record<string, Column<RequestSummary>>;
type ColumnName = keyof typeof COLUMNS;

const NAMES = Object.keys(COLUMNS) as ColumnName[];
const SHOWN_FIRST: readonly ColumnName[] = NAMES.filter(
  (name) => !["route", "held", "user", "metadata", "request_id"].includes(name),
);
/** Key of the chosen columns in the browser's storage. */
const STORED = "tollgate_request_columns";

/** Reads the chosen columns. Storage may contain anything. */
function storedColumns(): Set<ColumnName> {
  const stored = readStored(STORED);
  return new Set(Array.isArray(stored) ? NAMES.filter((name) => stored.includes(name)) : SHOWN_FIRST);
}

/** Returns the columns that the user chose, and a function that stores another choice in the browser. */
export function useColumns() {
  const { isServiceWide } = useAccess();
  const [chosen, setChosen] = useState(storedColumns);
  const offered = NAMES.filter((name) => isServiceWide || name !== "provider_cost");
  const choose = (names: Set<ColumnName>) => {
    setChosen(names);
    store(STORED, [...names]);
  };
  const first: Column<RequestSummary> = { head: "Request", cell: (row) => <RequestLink request={row} /> };
  const columns = [
    first,
    ...offered.filter((name) => chosen.has(name)).map((name): Column<RequestSummary> => COLUMNS[name]),
  ];
  return { columns, offered, chosen, choose };
}

/** Button and dialog for the choice of columns. */
export function ColumnChoice({ offered, chosen, choose }: ReturnType<typeof useColumns>) {
  const [isOpen, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button icon={Columns3} onClick={() => setOpen(true)}>
        Columns
      </Button>
      {isOpen && (
        <Dialog title="Columns" onClose={close}>
          <div className="dialog-body">
            <Checks
              label="Shown columns"
              hint="The choice is stored in this browser."
              options={offered.map((name) => [name, COLUMNS[name].head] as const)}
              chosen={chosen}
              onChosen={choose}
            />
          </div>
          <footer className="dialog-foot">
            <Button onClick={() => choose(new Set(SHOWN_FIRST))}>Reset</Button>
            <Button look="main" onClick={close}>
              Done
            </Button>
          </footer>
        </Dialog>
      )}
    </>
  );
}

const durationOf = (durationMs: number | null) => (durationMs === null ? "–" : formatDuration(durationMs));

/** Status of a request, with its error code and the number of requests that the row represents. */
function Outcome({ request: { status, failure, refusal } }: { request: RequestSummary }) {
  const repeated = refusal === null || refusal.count === 1 ? "" : ` × ${formatCount(refusal.count)}`;
  return (
    <span className="cell-two" title={refusal?.message}>
      <StatusBadge status={status} />
      {failure !== null && <span className="small faint wrap-anywhere">{`${failure}${repeated}`}</span>}
    </span>
  );
}

/** Token of a request, for operators with its organization. */
function Caller({ request }: { request: RequestSummary }) {
  const { isServiceWide } = useAccess();
  const { organization_name, organization_id, token_name, token_id } = request;
  return (
    <span className="cell-two">
      <span className="wrap-anywhere">{token_name ?? token_id}</span>
      {isServiceWide && <span className="small faint wrap-anywhere">{organization_name ?? organization_id}</span>}
    </span>
  );
}

function Metadata({ values }: { values: Record<string, string> }) {
  const entries = Object.entries(values);
  if (entries.length === 0) return "–";
  return entries.map(([key, value]) => (
    <span key={key} className="small wrap-anywhere">
      <span className="faint">{key}</span> {value}{" "}
    </span>
  ));
}

function RequestLink({ request: { id, model, refusal, created_at } }: { request: RequestSummary }) {
  const search = useSearch();
  const path = `/requests/${encodeURIComponent(id)}`;
  return (
    <span className="cell-two">
      <ModelName id={model ?? ""}>
        <Link className="row-link wrap-anywhere" href={search === "" ? path : `${path}?${search}`}>
          {model ?? refusal?.endpoint}
        </Link>
      </ModelName>
      <span className="small faint">
        <Ago at={created_at} />
      </span>
    </span>
  );
}
