import { Download, Printer, ReceiptText } from "lucide-react";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import type { Organization, StatementEntry, StatementPage } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { countOf, formatAmount, formatChange } from "../../format/numbers.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Facts } from "../../ui/page.tsx";
import { Badge, Empty, type FailingQuery, Skeleton } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Moment, useNow } from "../../ui/values.tsx";
import { Choice } from "../filters.tsx";
import { PeriodChoice, type Times, timesOfPeriod } from "../period.tsx";
import { countedLabel, entryDescription, KIND_LABELS, TOTAL_LABELS } from "./statement-values.ts";

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
  const { isPrinting, print } = usePrint(list);
  const hasEnded = period.to !== undefined && Date.parse(period.to) <= nowMs;
  return (
    <Card
      title="Statement"
      about="Everything that changed the credits, oldest first · Days in UTC"
      flush
      isPrinted={isPrinting}
      actions={
        <>
          <Link href={withQuery("/statements", { organization_id: id })}>Monthly statements</Link>
          <Choice label="Kind" all="All entries" value={kind} options={Object.entries(KIND_LABELS)} onValue={setKind} />
          <PeriodChoice value={choice} ranges={RANGES} nowMs={nowMs} onValue={setChoice} />
          <a className="button button-plain" href={`${BASE_PATH}${withQuery(`${base}.csv`, filter)}`} download>
            <Download size={15} strokeWidth={1.9} aria-hidden="true" />
            <span>Export CSV</span>
          </a>
          <Button icon={Printer} busy={isPrinting} onClick={print}>
            Print
          </Button>
        </>
      }
    >
      <p className="print-only card-head">
        {`${formatMoment(period.from ?? nowMs)} to ${formatMoment(period.to ?? nowMs)}`}
        {kind !== "" && `, ${KIND_LABELS[kind as StatementEntry["kind"]]}`}
      </p>
      <Totals page={list.data?.pages[0]} hasEnded={hasEnded} />
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
      {list.hasNextPage && (
        <p className="print-only card-head">
          {`These are the first ${countOf(list.rows?.length ?? 0, "entry", "entries")}. The CSV file contains all.`}
        </p>
      )}
    </Card>
  );
}

/** Entries of a printed statement at the most: about 40 pages. */
const PRINTED_MAX = 1_000;

/** Returns a function that fetches the entries that are not shown yet and then opens the browser's print dialog. */
function usePrint({ rows, hasNextPage, isFetching, isError, fetchNextPage }: PrintedList) {
  const [isPrinting, setPrinting] = useState(false);
  useEffect(() => {
    if (!isPrinting || isFetching) return;
    if (hasNextPage && !isError && (rows?.length ?? 0) < PRINTED_MAX) {
      void fetchNextPage();
      return;
    }
    addEventListener("afterprint", () => setPrinting(false), { once: true });
    window.print();
  }, [isPrinting, isFetching, isError, hasNextPage, rows?.length, fetchNextPage]);
  return { isPrinting, print: () => setPrinting(true) };
}

interface PrintedList extends FailingQuery {
  rows: unknown[] | undefined;
  hasNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** Balances at the beginning and at the end of the period, and what its entries of each kind add up to. */
function Totals({ page, hasEnded }: { page: StatementPage | undefined; hasEnded: boolean }) {
  const figure = (amount: number | null | undefined, format: (credits: number) => string) =>
    amount === null || amount === undefined ? <Skeleton width="4rem" /> : format(amount);
  return (
    <div className="statement-totals">
      <Facts
        facts={[
          ["Opening balance", figure(page?.opening, formatAmount)],
          ...TOTAL_LABELS.map(([name, label]) => [label, figure(page?.totals?.[name], formatChange)] as const),
          [hasEnded ? "Closing balance" : "Balance so far", figure(page?.closing, formatAmount)],
        ]}
      />
    </div>
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
  { head: "Balance", right: true, cell: ({ balance }) => formatAmount(balance) },
];

function What({ entry }: { entry: StatementEntry }) {
  const { may } = useAccess();
  const words = entryDescription(entry);
  const counted = countedLabel(entry);
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
