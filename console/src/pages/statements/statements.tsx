import { useQuery } from "@tanstack/react-query";
import { Download, FileText, Printer } from "lucide-react";
import { Link, Route, Switch } from "wouter";
import { read } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { ListedStatement, MonthlyStatement } from "../../api/types.ts";
import { BASE_PATH } from "../../base-path.ts";
import { formatAmount, formatChange, formatCount } from "../../format/numbers.ts";
import { formatDate, formatMonth } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Facts, Page } from "../../ui/page.tsx";
import { Badge, Empty, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { useFilters } from "../filters.tsx";
import { KIND_LABELS, referenceLabel, TOTAL_LABELS } from "../organizations/statement-values.ts";

/** The list of monthly statements, and the page of one, for printing. */
export default function Statements() {
  return (
    <Switch>
      <Route path="/statements/:id">{({ id }) => <StatementPage key={id} id={id} />}</Route>
      <Route>
        <StatementsPage />
      </Route>
    </Switch>
  );
}

const pathOf = (id: string) => `/statements/${encodeURIComponent(id)}`;

function StatementsPage() {
  const { isServiceWide } = useAccess();
  const [{ organization_id }] = useFilters(["organization_id"]);
  const list = useList<ListedStatement>("statements", "/admin/v1/statements", { organization_id });
  return (
    <Page title="Statements" about="One per month, made a day after the month ends (UTC)">
      <Card flush>
        <Listing
          caption="Statements"
          list={list}
          columns={listColumns(isServiceWide)}
          keyOf={({ id }) => id}
          empty={
            <Empty icon={FileText} title="No statements">
              The first statement appears after the end of a month with credits.
            </Empty>
          }
        />
      </Card>
    </Page>
  );
}

function listColumns(isServiceWide: boolean): Column<ListedStatement>[] {
  return [
    {
      head: "Number",
      cell: ({ id }) => (
        <Link className="row-link wrap-anywhere" href={pathOf(id)}>
          {id}
        </Link>
      ),
    },
    { head: "Month", cell: ({ month }) => formatMonth(month) },
    ...(isServiceWide
      ? [
          {
            head: "Organization",
            cell: ({ customer }: ListedStatement) => <span className="wrap-anywhere">{customer.name}</span>,
          },
        ]
      : []),
    { head: "Charged", right: true, cell: ({ totals }) => formatChange(totals.charge) },
    { head: "Closing balance", right: true, cell: ({ closing }) => formatAmount(closing) },
  ];
}

function StatementPage({ id }: { id: string }) {
  const query = useSteady(
    useQuery({
      queryKey: ["statements", "one", id],
      queryFn: ({ signal }) => read<MonthlyStatement>(`/admin/v1${pathOf(id)}`, signal),
      staleTime: Number.POSITIVE_INFINITY,
    }),
  );
  if (query.data !== undefined) return <Loaded statement={query.data} />;
  return (
    <Page title="Statement" actions={<Link href="/statements">All statements</Link>}>
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="24rem" />}
    </Page>
  );
}

function Loaded({ statement }: { statement: MonthlyStatement }) {
  const { id, month, final, letterhead, customer, bookings, models, tokens, digest } = statement;
  return (
    <Page
      title={`Statement ${id}`}
      about={`${formatMonth(month)}, in UTC · Amounts in credits`}
      actions={
        <>
          <Link href="/statements">All statements</Link>
          <a className="button button-plain" href={`${BASE_PATH}/admin/v1${pathOf(id)}/csv`} download>
            <Download size={15} strokeWidth={1.9} aria-hidden="true" />
            <span>Export CSV</span>
          </a>
          <Button icon={Printer} onClick={() => window.print()}>
            Print
          </Button>
        </>
      }
    >
      <article className="card statement" data-printed>
        <header className="statement-head">
          <Lines label="Customer" lines={[customer.name, customer.external_id, ...customer.contacts]} />
          <Lines label="Issued by" lines={[letterhead.name, ...letterhead.address, letterhead.tax_id]} />
        </header>
        <Facts
          facts={[
            ["Number", id],
            ["Issued", formatDate(statement.made_at)],
            ...(final ? [["Status", <Badge key="final">Final statement</Badge>] as const] : []),
            ["Opening balance", formatAmount(statement.opening)],
            ...TOTAL_LABELS.map(([name, label]) => [label, formatChange(statement.totals[name])] as const),
            ["Closing balance", <strong key="closing">{formatAmount(statement.closing)}</strong>],
          ]}
        />
        <Section title="Charges by model" rows={models} columns={MODEL_COLUMNS} keyOf={({ model }) => model ?? ""} />
        <Section title="Charges by token" rows={tokens} columns={TOKEN_COLUMNS} keyOf={(line) => line.token_id ?? ""} />
        <Section
          title="Grants and other bookings"
          rows={bookings}
          columns={BOOKING_COLUMNS}
          keyOf={(line) => `${line.kind} ${line.id}`}
        />
        <footer className="statement-foot small faint">
          {letterhead.footer !== null && <p>{letterhead.footer}</p>}
          <p className="wrap-anywhere">Digest of the month: {digest}</p>
        </footer>
      </article>
    </Page>
  );
}

/** Lines of an address. Nothing is shown without one. */
function Lines({ label, lines }: { label: string; lines: readonly (string | null)[] }) {
  const shown = lines.filter((line) => line !== null);
  if (shown.length === 0) return null;
  return (
    <div>
      <h2 className="small faint">{label}</h2>
      {shown.map((line) => (
        <p key={line} className="wrap-anywhere">
          {line}
        </p>
      ))}
    </div>
  );
}

interface SectionProps<T> {
  title: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
}

function Section<T>({ title, ...table }: SectionProps<T>) {
  if (table.rows.length === 0) return null;
  return (
    <section>
      <h2>{title}</h2>
      <Table {...table} caption={title} empty={null} isPlain />
    </section>
  );
}

type Charges = MonthlyStatement["models"][number] | MonthlyStatement["tokens"][number];
const CHARGE_COLUMNS: readonly Column<Charges>[] = [
  { head: "Requests", right: true, cell: ({ requests }) => formatCount(requests) },
  { head: "Input tokens", right: true, cell: ({ input_tokens }) => formatCount(input_tokens) },
  { head: "Output tokens", right: true, cell: ({ output_tokens }) => formatCount(output_tokens) },
  { head: "Amount", right: true, cell: ({ amount }) => formatChange(amount) },
];
const MODEL_COLUMNS: readonly Column<MonthlyStatement["models"][number]>[] = [
  { head: "Model", cell: ({ model }) => <span className="wrap-anywhere">{model ?? "All others"}</span> },
  ...CHARGE_COLUMNS,
];
const TOKEN_COLUMNS: readonly Column<MonthlyStatement["tokens"][number]>[] = [
  {
    head: "Token",
    cell: ({ token_id, token_name }) => <span className="wrap-anywhere">{token_name ?? token_id ?? "All others"}</span>,
  },
  ...CHARGE_COLUMNS,
];
const BOOKING_COLUMNS: readonly Column<MonthlyStatement["bookings"][number]>[] = [
  { head: "Day", cell: ({ at }) => (at === null ? "" : formatDate(at)) },
  {
    head: "Description",
    cell: ({ kind, reference, note }) => {
      const label = kind === "allowance" ? "Allowance" : KIND_LABELS[kind];
      const words = [reference && referenceLabel(reference), note].filter(Boolean).join(": ");
      return <span className="wrap-anywhere">{words === "" ? label : `${label}, ${words}`}</span>;
    },
  },
  { head: "Amount", right: true, cell: ({ amount }) => formatChange(amount) },
];
