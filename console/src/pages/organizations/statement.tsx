import { Download, ReceiptText } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import type { StatementEntry, StatementPage } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { formatAmount, formatChange, formatExactCredits } from "../../format/numbers.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Moment } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";
import { type Days, entryDescription, KIND_LABELS, lastWeek, periodOf } from "./statement-values.ts";

/** Statement, oldest entry first, with the balance after each entry. */
export function Statement({ organizationId }: { organizationId: string }) {
  const [days, setDays] = useState<Days>(() => lastWeek(Date.now()));
  const [kind, setKind] = useState("");
  const period = periodOf(days);
  const base = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/statement`;
  const filter = { ...period, ...(kind !== "" && { kind }) };
  const list = useList<StatementEntry, StatementPage>("organizations", base, filter);
  const opening = list.data?.pages[0]?.opening;
  return (
    <Card
      title="Statement"
      about={opening === undefined ? "Loading …" : `Opening balance: ${formatAmount(opening)}`}
      flush
      actions={
        <>
          <Choice label="Kind" all="All entries" value={kind} options={Object.entries(KIND_LABELS)} onValue={setKind} />
          <DayFields days={days} onDays={setDays} />
          <a className="button button-plain" href={`${BASE_PATH}${withQuery(`${base}.csv`, filter)}`} download>
            <Download size={15} strokeWidth={1.9} aria-hidden="true" />
            <span>Export CSV</span>
          </a>
        </>
      }
    >
      <Listing
        caption="Statement"
        list={list}
        columns={COLUMNS}
        keyOf={({ at, kind: what, id, balance }) => [at, what, id, balance].join()}
        empty={
          <Empty icon={ReceiptText} title="No entries in this period">
            Select other dates or all entries.
          </Empty>
        }
      />
    </Card>
  );
}

const COLUMNS: readonly Column<StatementEntry>[] = [
  { head: "Time", cell: ({ at }) => <Moment at={at} /> },
  { head: "Description", cell: (entry) => <What entry={entry} /> },
  {
    head: "Amount",
    right: true,
    cell: ({ amount }) => <span className={amount > 0 ? "nowrap good" : "nowrap"}>{formatChange(amount)}</span>,
  },
  { head: "Balance", right: true, wideOnly: true, cell: ({ balance }) => formatExactCredits(balance) },
];

function What({ entry }: { entry: StatementEntry }) {
  const words = entryDescription(entry);
  return (
    <span className="row row-stacked">
      <Badge tone={entry.kind === "charge" ? "plain" : "accent"}>{KIND_LABELS[entry.kind]}</Badge>
      {entry.kind === "charge" && entry.id !== null ? (
        <Link className="row-link wrap-anywhere" href={`/requests/${encodeURIComponent(entry.id)}`}>
          {words}
        </Link>
      ) : (
        <span className="wrap-anywhere">{words}</span>
      )}
    </span>
  );
}

function DayFields({ days, onDays }: { days: Days; onDays: (days: Days) => void }) {
  const fields = [
    ["from", "From"],
    ["to", "To"],
  ] as const;
  return fields.map(([name, label]) => (
    <label key={name} className="row">
      <span className="small faint">{label}</span>
      <input
        type="date"
        className="day"
        value={days[name]}
        onChange={(event) => onDays({ ...days, [name]: event.target.value })}
      />
    </label>
  ));
}
