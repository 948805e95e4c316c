import { useQuery } from "@tanstack/react-query";
import { Download, ReceiptText } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { openingBalance, useList } from "../../api/queries.ts";
import type { StatementEntry, StatementPage } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { formatAmount, formatChange } from "../../format/numbers.ts";
import type { Days } from "../../format/times.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Moment, useNow } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";
import { daysOfPeriod, PeriodChoice } from "../period.tsx";
import { entryDescription, KIND_LABELS, periodOf } from "./statement-values.ts";

/** Choice of the dates in two fields. */
const DATES = "dates";
const RANGES = [
  ["7", "Last 7 days"],
  [DATES, "Selected dates"],
] as const;
const ANY_DAYS: Days = { from: "", to: "" };

/** Statement, oldest entry first, with the balance after each entry. */
export function Statement({ organizationId }: { organizationId: string }) {
  const nowMs = useNow();
  const [choice, setChoice] = useState("7");
  const [dates, setDates] = useState(ANY_DAYS);
  const [kind, setKind] = useState("");
  const days = daysOfPeriod(choice, nowMs) ?? dates;
  const period = periodOf(days);
  const base = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/statement`;
  const filter = { ...period, ...(kind !== "" && { kind }) };
  const list = useList<StatementEntry, StatementPage>("organizations", base, filter);
  const hasEnded = period.to !== undefined && Date.parse(period.to) <= nowMs;
  const closing = useQuery({ ...openingBalance(base, period.to ?? ""), enabled: hasEnded });
  const choose = (value: string) => {
    // The fields begin with the period that was shown.
    if (value === DATES) setDates(days);
    setChoice(value);
  };
  return (
    <Card
      title="Statement"
      about={balancesLabel(list.data?.pages[0]?.opening, hasEnded ? closing.data?.opening : undefined)}
      flush
      actions={
        <>
          <Choice label="Kind" all="All entries" value={kind} options={Object.entries(KIND_LABELS)} onValue={setKind} />
          <PeriodChoice value={choice} ranges={RANGES} nowMs={nowMs} onValue={choose} />
          {choice === DATES && <DayFields days={dates} onDays={setDates} />}
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

function balancesLabel(opening: number | undefined, closing: number | undefined): string {
  if (opening === undefined) return "Loading …";
  const end = closing === undefined ? "" : ` · Closing balance: ${formatAmount(closing)}`;
  return `Opening balance: ${formatAmount(opening)}${end} · Days in UTC`;
}

const COLUMNS: readonly Column<StatementEntry>[] = [
  { head: "Time", cell: ({ at }) => <Moment at={at} /> },
  { head: "Description", cell: (entry) => <What entry={entry} /> },
  {
    head: "Amount",
    right: true,
    cell: ({ amount }) => <span className={amount > 0 ? "nowrap good" : "nowrap"}>{formatChange(amount)}</span>,
  },
  { head: "Balance", right: true, cell: ({ balance }) => formatAmount(balance) },
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
