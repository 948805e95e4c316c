import { useQuery } from "@tanstack/react-query";
import { Download, ReceiptText } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { openingBalance, useList } from "../../api/queries.ts";
import type { Organization, StatementEntry, StatementPage } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { formatAmount, formatChange } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Moment, useNow } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";
import { PeriodChoice, type Times, timesOfPeriod } from "../period.tsx";
import { budgetsLabel, entryDescription, KIND_LABELS } from "./statement-values.ts";

const RANGES = [["7", "Last 7 days"]] as const;

/** Statement, oldest entry first, with the balance after each entry. */
export function Statement({ organization: { id } }: { organization: Organization }) {
  const nowMs = useNow();
  const [choice, setChoice] = useState("7");
  const [kind, setKind] = useState("");
  const period: Partial<Times> = timesOfPeriod(choice, nowMs) ?? {};
  const base = `/admin/v1/organizations/${encodeURIComponent(id)}/statement`;
  const filter = { ...period, ...(kind !== "" && { kind }) };
  const list = useList<StatementEntry, StatementPage>("organizations", base, filter);
  const hasEnded = period.to !== undefined && Date.parse(period.to) <= nowMs;
  const closing = useQuery({ ...openingBalance(base, period.to ?? ""), enabled: hasEnded });
  return (
    <Card
      title="Statement"
      about={balancesLabel(list.data?.pages[0]?.opening, hasEnded ? closing.data?.opening : undefined)}
      flush
      actions={
        <>
          <Choice label="Kind" all="All entries" value={kind} options={Object.entries(KIND_LABELS)} onValue={setKind} />
          <PeriodChoice value={choice} ranges={RANGES} nowMs={nowMs} onValue={setChoice} />
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
  const { may } = useAccess();
  const words = entryDescription(entry);
  const counted = budgetsLabel(entry);
  return (
    <span className="row row-stacked">
      <Badge tone={entry.kind === "charge" ? "plain" : "accent"}>{KIND_LABELS[entry.kind]}</Badge>
      {entry.kind === "charge" && entry.id !== null && may("requests:read") ? (
        <Link className="row-link wrap-anywhere" href={`/requests/${encodeURIComponent(entry.id)}`}>
          {words}
        </Link>
      ) : (
        <span className="wrap-anywhere">{words}</span>
      )}
      {counted !== null && <span className="small faint wrap-anywhere">{counted}</span>}
    </span>
  );
}
