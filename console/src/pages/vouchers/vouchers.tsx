import { useQuery } from "@tanstack/react-query";
import { Ban, List, Plus, Ticket } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { chosen, useList } from "../../api/queries.ts";
import type { NewVoucherBatch, Voucher, VoucherBatch, VoucherBatchWithCodes } from "../../api/types.ts";
import { countOf, formatAmount, formatCount } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button, IconButton } from "../../ui/button.tsx";
import { Dialog, DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago, Credits } from "../../ui/values.tsx";
import { type ExpiryChoice, ExpiryFields } from "../form-fields.tsx";
import { CreditsField, Summary } from "../organizations/booking-forms.tsx";
import { type Read, readCredits, readExpiry, readWhole, shownError } from "../read-form.ts";
import { showSecret } from "../tokens/secret.tsx";

const BATCHES = "/admin/v1/voucher-batches";
const AFFECTED = ["vouchers", "audit"];

type OpenDialog = { what: "create" } | { what: "list" | "revoke"; batch: VoucherBatch } | null;

/** Batches of vouchers with their numbers. */
export default function Vouchers() {
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const list = useList<VoucherBatch>("vouchers", BATCHES, {}, { isLive: true });
  const close = () => setOpenDialog(null);
  return (
    <Page
      title="Vouchers"
      about="Codes that grant credits once"
      actions={
        may("vouchers:write") && (
          <Button look="main" icon={Plus} onClick={() => setOpenDialog({ what: "create" })}>
            Create vouchers
          </Button>
        )
      }
    >
      <Card title="Batches" flush>
        <Listing
          caption="Batches"
          list={list}
          columns={columnsOf(may("vouchers:write"), setOpenDialog)}
          keyOf={({ id }) => id}
          skeletonRows={3}
          empty={
            <Empty icon={Ticket} title="No vouchers">
              Vouchers appear here when they are created.
            </Empty>
          }
        />
      </Card>
      {openDialog?.what === "create" && <CreateForm onClose={close} />}
      {openDialog?.what === "list" && <BatchVouchers batch={openDialog.batch} onClose={close} />}
      {openDialog?.what === "revoke" && <RevokeForm batch={openDialog.batch} onClose={close} />}
    </Page>
  );
}

function columnsOf(mayChange: boolean, onOpen: (openDialog: OpenDialog) => void): Column<VoucherBatch>[] {
  return [
    {
      head: "Batch",
      cell: ({ id, name }) => (
        <span className="cell-two">
          <span className="wrap-anywhere">{name}</span>
          <span className="small faint mono wrap-anywhere">{id}</span>
        </span>
      ),
    },
    { head: "Created", cell: ({ created_at }) => <Ago at={created_at} /> },
    { head: "Expires", cell: ({ expires_at }) => (expires_at === null ? "Never" : formatDate(expires_at)) },
    { head: "Credits each", right: true, cell: ({ amount }) => <Credits value={amount} /> },
    { head: "Vouchers", right: true, cell: ({ count }) => formatCount(count) },
    { head: "Redeemed", right: true, cell: ({ redeemed }) => formatCount(redeemed) },
    { head: "Expired", right: true, cell: ({ expired }) => formatCount(expired) },
    { head: "Revoked", right: true, cell: ({ revoked }) => formatCount(revoked) },
    {
      head: "Actions",
      right: true,
      cell: (batch) => (
        <>
          <IconButton
            icon={List}
            label={`Show vouchers of ${batch.name}`}
            onClick={() => onOpen({ what: "list", batch })}
          />
          {mayChange && batch.revoked_at === null && batch.redeemed < batch.count && (
            <IconButton icon={Ban} label={`Revoke ${batch.name}`} onClick={() => onOpen({ what: "revoke", batch })} />
          )}
        </>
      ),
    },
  ];
}

const STATUSES = {
  active: { label: "Not redeemed", tone: "plain" },
  redeemed: { label: "Redeemed", tone: "good" },
  expired: { label: "Expired", tone: "warn" },
  revoked: { label: "Revoked", tone: "warn" },
} as const;

const VOUCHER_COLUMNS: readonly Column<Voucher>[] = [
  { head: "Code", cell: ({ prefix }) => <span className="mono">{`${prefix}…`}</span> },
  { head: "Status", cell: ({ status }) => <Badge tone={STATUSES[status].tone}>{STATUSES[status].label}</Badge> },
  {
    head: "Organization",
    cell: ({ organization_id: id }) => (id === null ? "–" : <OrganizationName id={id} />),
  },
  { head: "Redeemed", cell: ({ redeemed_at }) => <Ago at={redeemed_at} never="–" /> },
];

interface BatchProps {
  batch: VoucherBatch;
  onClose: () => void;
}

/** Side panel with the vouchers of a batch. */
function BatchVouchers({ batch: { id, name }, onClose }: BatchProps) {
  const list = useList<Voucher>("vouchers", `${BATCHES}/${encodeURIComponent(id)}/vouchers`, {});
  return (
    <Dialog title={`Vouchers of ${name}`} side onClose={onClose}>
      <div className="dialog-body">
        <Listing
          caption={`Vouchers of ${name}`}
          list={list}
          columns={VOUCHER_COLUMNS}
          keyOf={(voucher) => voucher.id}
          empty={null}
        />
      </div>
    </Dialog>
  );
}

function OrganizationName({ id }: { id: string }) {
  const { data } = useQuery(chosen("organizations", id));
  return (
    <Link className="wrap-anywhere" href={`/organizations/${encodeURIComponent(id)}`}>
      {data?.name ?? id}
    </Link>
  );
}

function RevokeForm({ batch: { id, name, count, redeemed }, onClose }: BatchProps) {
  const revoke = useAction(
    (_: undefined, key) => send<VoucherBatch>("POST", `${BATCHES}/${encodeURIComponent(id)}/revoke`, {}, key),
    AFFECTED,
    onClose,
  );
  return (
    <DialogForm
      title={`Revoke ${name}?`}
      action="Revoke vouchers"
      danger
      attempt={revoke}
      onSubmit={() => revoke.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        {`${countOf(count - redeemed, "voucher")} that nobody has redeemed can no longer be redeemed. This can't be undone. Credits that were granted stay.`}
      </p>
    </DialogForm>
  );
}

const COUNT_MAX = 1_000;
const DAYS_MAX = 3_650;

function CreateForm({ onClose }: { onClose: () => void }) {
  // Fixed when the form opens, so that a retry sends the same expiry.
  const [openedAtMs] = useState(() => Date.now());
  const [name, setName] = useState("");
  const [count, setCount] = useState("10");
  const [amount, setAmount] = useState("");
  const [expiry, setExpiry] = useState<ExpiryChoice>("never");
  const [day, setDay] = useState("");
  const [days, setDays] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const create = useAction(
    (input: NewVoucherBatch, key) => send<VoucherBatchWithCodes>("POST", BATCHES, input, key),
    AFFECTED,
    (batch) => showSecret({ title: "Vouchers created", batch }, onClose),
  );
  const title: Read<string> = name.trim() === "" ? { error: "Enter a name." } : { value: name.trim() };
  const number = readWhole(count, COUNT_MAX);
  const credits = readCredits(amount);
  const end = readExpiry(expiry, day, openedAtMs);
  const life: Read<number | null> = days.trim() === "" ? { value: null } : readWhole(days, DAYS_MAX);
  const submit = () => {
    setSubmitted(true);
    if ("error" in title || "error" in number || "error" in credits || "error" in end || "error" in life) return;
    const terms = { expires_at: end.value, credit_days: life.value };
    create.mutate({ name: title.value, count: number.value, amount: credits.value, ...terms });
  };
  return (
    <DialogForm title="Create vouchers" action="Create vouchers" attempt={create} onSubmit={submit} onClose={onClose}>
      <TextField
        label="Name"
        hint="For example the event or the reseller."
        maxLength={200}
        value={name}
        error={shownError(title, name, isSubmitted)}
        onValue={setName}
      />
      <div className="fields">
        <TextField
          label="Number of vouchers"
          inputMode="numeric"
          value={count}
          error={shownError(number, count, isSubmitted)}
          onValue={setCount}
        />
        <CreditsField label="Credits each" text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      </div>
      <ExpiryFields
        label="Vouchers expire"
        choice={expiry}
        day={day}
        error={shownError(end, day, isSubmitted)}
        onChoice={setExpiry}
        onDay={setDay}
      />
      <TextField
        label="Days to spend the credits"
        hint="Counted from the redemption. Leave blank for no limit."
        inputMode="numeric"
        value={days}
        error={shownError(life, days, isSubmitted)}
        onValue={setDays}
      />
      <Summary text={"value" in number && "value" in credits ? summaryOf(number.value, credits.value) : null} />
    </DialogForm>
  );
}

function summaryOf(count: number, credits: number): string {
  return `Creates ${countOf(count, "voucher")}, together worth ${formatAmount(count * credits)} credits.`;
}
