import { useQuery } from "@tanstack/react-query";
import { Eye, Gauge, Pencil, Plus, Trash2, TrendingUp } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { budgets as budgetsQuery, useList, useTokenNames } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Budget, BudgetCounter, BudgetWithCounters } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { limitsLabel } from "../limits-label.ts";
import { RequestsLink } from "../requests/link.tsx";
import { ChangeBudget, CreateBudget, DeleteBudget, RaiseBudget } from "./budget-forms.tsx";
import { coverageLabel, eachLabel, fillOf, usageLabel, WINDOWS } from "./budget-terms.ts";

type OpenDialog =
  | { what: "create" }
  | { what: "change" | "delete" | "values"; budget: Budget }
  | { what: "raise"; budget: Budget; value: string | null };
type Open = (openDialog: OpenDialog) => void;

/** Rows that are shown at first, and with each click for more: the spending caps of tokens can be many. */
const ROWS = 50;

interface BudgetsProps {
  organizationId: string;
  /** Leaves out the budgets that do not cover this caller, the first token of its rotations. */
  callerId?: string;
}

/** Budgets of an organization with what is spent and held in their current window. */
export function Budgets({ organizationId, callerId }: BudgetsProps) {
  const { may } = useAccess();
  const mayChange = may("budgets:write");
  const [openDialog, setOpenDialog] = useState<OpenDialog | null>(null);
  const [shown, setShown] = useState(ROWS);
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/budgets`;
  const query = useSteady(useQuery(budgetsQuery(path)));
  const isCovering = ({ selector }: Budget) => callerId === undefined || (selector.tokens?.includes(callerId) ?? true);
  const all = query.data?.data.filter(isCovering);
  if (!may("budgets:read") || (!mayChange && all?.length === 0)) return null;
  // Caps last: they are listed with their tokens as well.
  const sorted = all?.toSorted((a, b) => Number(a.cap_of !== null) - Number(b.cap_of !== null));
  const list = {
    ...query,
    rows: sorted?.slice(0, shown),
    hasNextPage: (sorted?.length ?? 0) > shown,
    isFetchingNextPage: false,
    fetchNextPage: () => setShown(shown + ROWS),
  };
  return (
    <Card
      title="Budgets"
      about="Limits on spending in a window of time, and on requests and tokens per minute"
      flush
      actions={
        mayChange && (
          <Button icon={Plus} onClick={() => setOpenDialog({ what: "create" })}>
            Create budget
          </Button>
        )
      }
    >
      <Listing
        caption="Budgets"
        list={list}
        columns={columnsOf(mayChange, setOpenDialog)}
        keyOf={({ id }) => id}
        skeletonRows={1}
        empty={
          <Empty icon={Gauge} title="No budgets">
            Create one to limit what a team, a user, a token or a model can use.
          </Empty>
        }
      />
      {openDialog !== null && (
        <BudgetDialog
          path={path}
          organizationId={organizationId}
          openDialog={openDialog}
          onOpen={setOpenDialog}
          onClose={() => setOpenDialog(null)}
        />
      )}
    </Card>
  );
}

interface BudgetDialogProps {
  path: string;
  organizationId: string;
  openDialog: OpenDialog;
  onOpen: Open;
  onClose: () => void;
}

function BudgetDialog({ path, organizationId, openDialog, onOpen, onClose }: BudgetDialogProps) {
  if (openDialog.what === "create") {
    return <CreateBudget path={path} organizationId={organizationId} onClose={onClose} />;
  }
  const { budget } = openDialog;
  const props = { path: `${path}/${encodeURIComponent(budget.id)}`, budget, onClose };
  switch (openDialog.what) {
    case "change":
      return <ChangeBudget {...props} />;
    case "raise":
      return <RaiseBudget {...props} value={openDialog.value} />;
    case "delete":
      return <DeleteBudget {...props} />;
    default:
      return <BudgetValues {...props} onOpen={onOpen} />;
  }
}

function columnsOf(mayChange: boolean, onOpen: Open): Column<Budget>[] {
  const columns: (Column<Budget> | false)[] = [
    { head: "Budget", cell: (budget) => <Name budget={budget} /> },
    { head: "Covers", cell: (budget) => <Coverage budget={budget} /> },
    { head: "Spent and held", cell: (budget) => <Use budget={budget} onOpen={onOpen} /> },
    {
      head: "Remaining",
      right: true,
      cell: ({ current }) => (current === null ? "–" : <Credits value={current.remaining} />),
    },
    {
      head: "Resets",
      cell: ({ resets_at, amount, window }) => amount !== null && <Reset at={resets_at} window={window} />,
    },
    mayChange && { head: "Actions", right: true, cell: (budget) => <Actions budget={budget} onOpen={onOpen} /> },
  ];
  return columns.filter((column) => column !== false);
}

/** Name of a budget, which leads to the requests that it counts. */
function Name({ budget: { id, organization_id, name, window, amount, cap_of } }: { budget: Budget }) {
  const { may } = useAccess();
  return (
    <span className="cell-two budget-name">
      <RequestsLink view={{ organization_id, budget_id: id }}>{name}</RequestsLink>
      {amount !== null && (
        <span className="small faint">{WINDOWS.find(([known]) => known === window)?.[1] ?? window}</span>
      )}
      {cap_of !== null && may("tokens:read") && (
        <Link href={`/tokens/${encodeURIComponent(cap_of)}`}>Edit on the token's page</Link>
      )}
    </span>
  );
}

function Coverage({ budget: { selector, each, limits, by_callers_word } }: { budget: Budget }) {
  const nameOf = useTokenNames(selector.tokens ?? []);
  return (
    <span className="cell-two">
      <span className="wrap-anywhere">{coverageLabel(selector, nameOf)}</span>
      {limits !== null && <span className="small">At most {limitsLabel(limits)}</span>}
      {each !== null && <span className="small faint wrap-anywhere">Separately for {eachLabel(each)}</span>}
      {by_callers_word && (
        <span title="A covered token does not pin the metadata: its callers can choose other values.">
          <Badge tone="warn">Caller-supplied</Badge>
        </span>
      )}
    </span>
  );
}

function Use({ budget, onOpen }: { budget: Budget; onOpen: Open }) {
  const { current, amount, name } = budget;
  if (amount === null) return "–";
  if (current !== null) return <Meter counter={current} amount={amount} />;
  return (
    <span className="cell-two meter">
      <span className="figures">{formatAmount(amount)} for each value</span>
      <Button icon={Eye} aria-label={`Show values of ${name}`} onClick={() => onOpen({ what: "values", budget })}>
        Show values
      </Button>
    </span>
  );
}

/** Bar of spent and held credits with the figures in words. */
function Meter({ counter, amount }: { counter: BudgetCounter; amount: number | null }) {
  const { spentPercent, heldPercent, warning } = fillOf(counter);
  return (
    <span className="cell-two meter">
      <span className="figures">{usageLabel(counter)}</span>
      <span className="share share-parts" aria-hidden="true">
        <span style={{ width: `${spentPercent}%` }} />
        <span className="share-held" style={{ width: `${heldPercent}%` }} />
      </span>
      {amount !== null && counter.limit !== amount && (
        <span className="small faint">Raised from {formatAmount(amount)} in this window</span>
      )}
      {warning !== null && <Badge tone={warning.tone}>{warning.text}</Badge>}
    </span>
  );
}

function Reset({ at, window }: { at: string | null; window: Budget["window"] }) {
  if (at !== null) return <time dateTime={at}>{formatMoment(at)}</time>;
  return window === "lifetime" ? <span className="faint">Never</span> : "–";
}

function Actions({ budget, onOpen }: { budget: Budget; onOpen: Open }) {
  if (budget.cap_of !== null) return null;
  const { name } = budget;
  return (
    <span className="row end">
      <Button icon={Pencil} aria-label={`Change ${name}`} onClick={() => onOpen({ what: "change", budget })}>
        Change
      </Button>
      {budget.each === null && budget.amount !== null && (
        <Button
          icon={TrendingUp}
          aria-label={`Raise ${name}`}
          onClick={() => onOpen({ what: "raise", budget, value: null })}
        >
          Raise
        </Button>
      )}
      <Button icon={Trash2} aria-label={`Delete ${name}`} onClick={() => onOpen({ what: "delete", budget })}>
        Delete
      </Button>
    </span>
  );
}

interface BudgetValuesProps {
  path: string;
  budget: Budget;
  onOpen: Open;
  onClose: () => void;
}

const countersIn = (answer: unknown) => (answer as BudgetWithCounters).counters;

/** Side panel with the values of a budget that gives each the whole amount. */
function BudgetValues({ path, budget, onOpen, onClose }: BudgetValuesProps) {
  const { may } = useAccess();
  const list = useList<BudgetCounter>("budgets", path, {}, { isLive: true, pageIn: countersIn });
  const values = (list.rows ?? []).flatMap(({ value }) => value ?? []);
  const nameOf = useTokenNames(budget.each === "token" ? values : []);
  const columns: (Column<BudgetCounter> | false)[] = [
    { head: "Value", cell: ({ value }) => <span className="wrap-anywhere">{value !== null && nameOf(value)}</span> },
    { head: "Spent and held", cell: (counter) => <Meter counter={counter} amount={budget.amount} /> },
    { head: "Remaining", right: true, cell: ({ remaining }) => <Credits value={remaining} /> },
    { head: "Resets", cell: ({ resets_at }) => <Reset at={resets_at} window={budget.window} /> },
    may("budgets:write") && {
      head: "Actions",
      right: true,
      cell: ({ value }) => (
        <Button
          icon={TrendingUp}
          aria-label={`Raise ${value !== null && nameOf(value)}`}
          onClick={() => onOpen({ what: "raise", budget, value })}
        >
          Raise
        </Button>
      ),
    },
  ];
  return (
    <Dialog title={`Values of ${budget.name}`} side onClose={onClose}>
      <div className="dialog-body">
        <Listing
          caption={`Values of ${budget.name}`}
          list={list}
          columns={columns.filter((column) => column !== false)}
          keyOf={({ value }) => value ?? ""}
          empty={
            <Empty icon={Gauge} title="No values yet">
              A value appears with its first request in the current window.
            </Empty>
          }
        />
      </div>
    </Dialog>
  );
}
