import { CalendarClock, CircleStop, Plus } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import type { Allowance, NewAllowance } from "../../api/types.ts";
import { formatDate } from "../../format/times.ts";
import { Button, IconButton } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField, TextField } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty, Failure } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { readCredits } from "../read-form.ts";

type Doing = { what: "create" } | { what: "end"; allowance: Allowance } | null;

/** Credits that come every month. */
export function Allowances({ organizationId, mayChange }: { organizationId: string; mayChange: boolean }) {
  const [doing, setDoing] = useState<Doing>(null);
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/allowances`;
  const list = useList<Allowance>("organizations", path, {});
  if (!mayChange && list.rows?.length === 0) return null;
  const close = () => setDoing(null);
  return (
    <Card
      title="Allowances"
      about="Credits that are granted every month"
      flush
      actions={
        mayChange && (
          <Button icon={Plus} onClick={() => setDoing({ what: "create" })}>
            Add allowance
          </Button>
        )
      }
    >
      <Listing
        caption="Allowances"
        list={list}
        columns={columnsOf(mayChange, (allowance) => setDoing({ what: "end", allowance }))}
        keyOf={({ id }) => id}
        skeletonRows={1}
        empty={
          <Empty icon={CalendarClock} title="No allowance">
            Add one to grant the same credits every month, without anybody having to think of it.
          </Empty>
        }
      />
      {doing?.what === "create" && <CreateAllowance path={path} onClose={close} />}
      {doing?.what === "end" && <EndAllowance path={path} allowance={doing.allowance} onClose={close} />}
    </Card>
  );
}

function columnsOf(mayChange: boolean, onEnd: (allowance: Allowance) => void): Column<Allowance>[] {
  const columns: Column<Allowance>[] = [
    { head: "A month", cell: ({ amount }) => <Credits value={amount} /> },
    {
      head: "State",
      cell: ({ ended_at }) => (
        <Badge tone={ended_at === null ? "good" : "plain"}>{ended_at === null ? "active" : "ended"}</Badge>
      ),
    },
    { head: "What is left", wideOnly: true, cell: ({ lapses }) => (lapses ? "lapses each month" : "stays") },
    { head: "Since", wideOnly: true, cell: ({ begins_at }) => formatDate(begins_at) },
    { head: "Next", cell: ({ next_at, ended_at }) => (ended_at === null ? formatDate(next_at) : "–") },
  ];
  const end = (allowance: Allowance) =>
    allowance.ended_at === null && (
      <IconButton icon={CircleStop} label="End the allowance" onClick={() => onEnd(allowance)} />
    );
  return mayChange ? [...columns, { head: "Actions", right: true, cell: end }] : columns;
}

const REST = [
  ["lapses", "Lapses when the next month begins"],
  ["stays", "Stays"],
] as const;

function CreateAllowance({ path, onClose }: { path: string; onClose: () => void }) {
  const [amount, setAmount] = useState("");
  const [rest, setRest] = useState<(typeof REST)[number][0]>("lapses");
  const [error, setError] = useState<string | null>(null);
  const create = useAction(
    (terms: NewAllowance) => send<Allowance>("POST", path, terms),
    ["organizations", "overview"],
    onClose,
  );
  const submit = () => {
    const credits = readCredits(amount);
    setError("error" in credits ? credits.error : null);
    if ("value" in credits) create.mutate({ amount: credits.value, lapses: rest === "lapses" });
  };
  return (
    <DialogForm
      title="Add allowance"
      action="Add allowance"
      busy={create.isPending}
      failure={create.isError && <Failure error={create.error} />}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>It is granted now, and every month from now on, at this hour.</p>
      <TextField label="Credits a month" inputMode="decimal" value={amount} error={error} onValue={setAmount} />
      <SelectField label="What is left at the end of a month" value={rest} options={REST} onValue={setRest} />
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
      title="End the allowance?"
      action="End allowance"
      danger
      busy={end.isPending}
      failure={end.isError && <Failure error={end.error} />}
      onSubmit={() => end.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        What was granted for this month stays. Nothing is granted on {formatDate(allowance.next_at)} or after it. It
        cannot be begun again; add another one instead.
      </p>
    </DialogForm>
  );
}
