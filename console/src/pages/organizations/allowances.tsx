import { CalendarClock, CircleStop, Plus } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import type { Allowance, NewAllowance, Organization } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { readCredits } from "../read-form.ts";
import { CreditsField, Summary } from "./booking-forms.tsx";

type OpenDialog = { what: "create" } | { what: "end"; allowance: Allowance } | null;

/** Monthly allowances of an organization. */
export function Allowances({ organization, mayChange }: { organization: Organization; mayChange: boolean }) {
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/allowances`;
  const list = useList<Allowance>("organizations", path, {});
  if (!mayChange && list.rows?.length === 0) return null;
  const close = () => setOpenDialog(null);
  return (
    <Card
      title="Monthly allowances"
      about="Renew automatically"
      flush
      actions={
        mayChange && (
          <Button icon={Plus} onClick={() => setOpenDialog({ what: "create" })}>
            Add allowance
          </Button>
        )
      }
    >
      <Listing
        caption="Monthly allowances"
        list={list}
        columns={columnsOf(mayChange, (allowance) => setOpenDialog({ what: "end", allowance }))}
        keyOf={({ id }) => id}
        skeletonRows={1}
        empty={
          <Empty icon={CalendarClock} title="No monthly allowances">
            Add one to grant the same credits every month.
          </Empty>
        }
      />
      {openDialog?.what === "create" && <CreateAllowance path={path} name={organization.name} onClose={close} />}
      {openDialog?.what === "end" && <EndAllowance path={path} allowance={openDialog.allowance} onClose={close} />}
    </Card>
  );
}

function columnsOf(mayChange: boolean, onEnd: (allowance: Allowance) => void): Column<Allowance>[] {
  const columns: Column<Allowance>[] = [
    { head: "Per month", cell: ({ amount }) => <Credits value={amount} /> },
    {
      head: "Status",
      cell: ({ ended_at }) => (
        <Badge tone={ended_at === null ? "good" : "plain"}>{ended_at === null ? "Active" : "Ended"}</Badge>
      ),
    },
    { head: "Unspent credits", cell: ({ lapses }) => (lapses ? "Expire each month" : "Carry over") },
    { head: "Started", cell: ({ begins_at }) => formatDate(begins_at) },
    { head: "Next grant", cell: ({ next_at, ended_at }) => (ended_at === null ? formatDate(next_at) : "–") },
  ];
  const end = (allowance: Allowance) =>
    allowance.ended_at === null && (
      <Button icon={CircleStop} aria-label="End allowance" onClick={() => onEnd(allowance)}>
        End
      </Button>
    );
  return mayChange ? [...columns, { head: "Actions", right: true, cell: end }] : columns;
}

const REST = [
  ["lapses", "Expire with the next monthly grant"],
  ["stays", "Carry over"],
] as const;

function CreateAllowance({ path, name, onClose }: { path: string; name: string; onClose: () => void }) {
  const [amount, setAmount] = useState("");
  const [rest, setRest] = useState<(typeof REST)[number][0]>("lapses");
  const [isSubmitted, setSubmitted] = useState(false);
  const create = useAction(
    (terms: NewAllowance, key) => send<Allowance>("POST", path, terms, key),
    ["organizations", "overview"],
    onClose,
  );
  const credits = readCredits(amount);
  const submit = () => {
    setSubmitted(true);
    if ("value" in credits) create.mutate({ amount: credits.value, lapses: rest === "lapses" });
  };
  return (
    <DialogForm title="Add allowance" action="Add allowance" attempt={create} onSubmit={submit} onClose={onClose}>
      <p>Starts now and repeats monthly.</p>
      <CreditsField
        label="Credits per month"
        text={amount}
        read={credits}
        isSubmitted={isSubmitted}
        onText={setAmount}
      />
      <SelectField label="Unspent credits at the end of a month" value={rest} options={REST} onValue={setRest} />
      <Summary
        text={
          "value" in credits ? `Grants ${formatAmount(credits.value)} credits to ${name} now and every month.` : null
        }
      />
    </DialogForm>
  );
}

interface EndAllowanceProps {
  path: string;
  allowance: Allowance;
  onClose: () => void;
}

function EndAllowance({ path, allowance, onClose }: EndAllowanceProps) {
  const end = useAction(
    () => send<Allowance>("DELETE", `${path}/${encodeURIComponent(allowance.id)}`),
    ["organizations", "overview"],
    onClose,
  );
  return (
    <DialogForm
      title="End allowance?"
      action="End allowance"
      danger
      attempt={end}
      onSubmit={() => end.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        Credits of this month are kept. No credits are granted on {formatDate(allowance.next_at)} or later. An ended
        allowance can't be restarted.
      </p>
    </DialogForm>
  );
}
