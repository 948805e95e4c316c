import { Send, Undo2 } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { useList } from "../../api/queries.ts";
import type { Receiver, WarningDelivery } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty, NoMatches } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { Choice, useFilters } from "../filters.tsx";
import { kindLabel } from "./kinds.ts";
import { EventsOf, receiverPath } from "./receivers.tsx";

const STATES = {
  waiting: { label: "Waiting", tone: "warn" },
  delivered: { label: "Delivered", tone: "good" },
  failed: { label: "Failed", tone: "bad" },
} as const satisfies Record<WarningDelivery["state"], object>;
const STATE_OPTIONS = Object.entries(STATES).map(([state, { label }]) => [state, label] as const);

interface DeliveriesProps {
  /** Leaves out those to other receivers. */
  receiverId?: string;
  receivers: readonly Receiver[] | undefined;
}

/** Deliveries of the last 30 days with the result of their last attempt, the newest first. */
export function Deliveries({ receiverId = "", receivers }: DeliveriesProps) {
  const { may, isServiceWide } = useAccess();
  const [{ state }, setFilters] = useFilters(["state"]);
  const [replayed, setReplayed] = useState<WarningDelivery | null>(null);
  const filter = { receiver_id: receiverId, state };
  const list = useList<WarningDelivery>("deliveries", "/admin/v1/deliveries", filter, { isLive: true });
  const nameOf = (id: string) => (isContacts(id) ? "Contacts" : (receivers?.find((one) => one.id === id)?.name ?? id));
  return (
    <Card
      title="Deliveries"
      about="Of the last 30 days, with the result of the last attempt"
      flush
      actions={
        <Choice
          label="State"
          all="All states"
          value={state}
          options={STATE_OPTIONS}
          onValue={(value) => setFilters({ state: value })}
        />
      }
    >
      <Listing
        caption="Deliveries"
        list={list}
        columns={columnsOf({
          isServiceWide,
          ...(receiverId === "" && { nameOf }),
          ...(may("receivers:write") && { onReplay: setReplayed }),
        })}
        keyOf={({ id }) => id}
        skeletonRows={3}
        empty={
          state === "" ? (
            <Empty icon={Send} title="No deliveries">
              Warnings appear here when they are sent to a receiver.
            </Empty>
          ) : (
            <NoMatches icon={Send} title="No matching deliveries" onClear={() => setFilters({ state: "" })} />
          )
        }
      />
      {replayed && <Replay delivery={replayed} name={nameOf(replayed.receiver_id)} onClose={() => setReplayed(null)} />}
    </Card>
  );
}

/** Tells whether a receiver is the contacts of an organization, who get its statements. */
const isContacts = (receiverId: string) => receiverId.startsWith("contacts_");

interface ColumnChoices {
  /** True for people who see the events of all organizations. */
  isServiceWide: boolean;
  /** Absent: the receiver is not shown. */
  nameOf?: (receiverId: string) => string;
  onReplay?: (delivery: WarningDelivery) => void;
}

function columnsOf({ isServiceWide, nameOf, onReplay }: ColumnChoices): Column<WarningDelivery>[] {
  const columns: (Column<WarningDelivery> | false | undefined)[] = [
    { head: "Time", cell: ({ created_at }) => <Ago at={created_at} /> },
    {
      head: "Event",
      cell: ({ kind, text }) => (
        <span className="cell-two">
          <span>{kindLabel(kind)}</span>
          <span className="small faint wrap-anywhere">{text}</span>
        </span>
      ),
    },
    isServiceWide && {
      head: "Organization",
      cell: ({ organization_id }) => (organization_id === null ? "–" : <EventsOf id={organization_id} />),
    },
    nameOf && {
      head: "Receiver",
      cell: ({ receiver_id: id }) =>
        isContacts(id) ? (
          nameOf(id)
        ) : (
          <Link className="wrap-anywhere" href={receiverPath(id)}>
            {nameOf(id)}
          </Link>
        ),
    },
    { head: "State", cell: (delivery) => <DeliveryState delivery={delivery} /> },
    { head: "Last attempt", cell: (delivery) => <LastAttempt delivery={delivery} /> },
    onReplay && {
      head: "Actions",
      right: true,
      cell: (delivery) => (
        <Button icon={Undo2} onClick={() => onReplay(delivery)}>
          {delivery.state === "waiting" ? "Send now" : "Send again"}
        </Button>
      ),
    },
  ];
  return columns.filter((column) => column !== undefined && column !== false);
}

function DeliveryState({ delivery: { state, next_attempt_at } }: { delivery: WarningDelivery }) {
  const { label, tone } = STATES[state];
  return (
    <span className="cell-two">
      <Badge tone={tone}>{label}</Badge>
      {next_attempt_at !== null && (
        <span className="small faint">
          Next attempt <Ago at={next_attempt_at} due="soon" />
        </span>
      )}
    </span>
  );
}

function LastAttempt({ delivery: { attempts, attempted_at, result } }: { delivery: WarningDelivery }) {
  if (attempted_at === null) return <span className="faint">Not yet attempted</span>;
  return (
    <span className="cell-two">
      <span className="wrap-anywhere">{result}</span>
      <span className="small faint">
        <Ago at={attempted_at} />, {countOf(attempts, "attempt")}
      </span>
    </span>
  );
}

interface ReplayProps {
  delivery: WarningDelivery;
  /** Name of the receiver. */
  name: string;
  onClose: () => void;
}

function Replay({ delivery, name, onClose }: ReplayProps) {
  // The state when the dialog opened: the list is live.
  const [isWaiting] = useState(delivery.state === "waiting");
  const action = isWaiting ? "Send now" : "Send again";
  const path = `/admin/v1/deliveries/${encodeURIComponent(delivery.id)}/replay`;
  const replay = useAction(
    (_: undefined, key) => send<WarningDelivery>("POST", path, {}, key),
    ["deliveries", "audit"],
    onClose,
  );
  return (
    <DialogForm
      title={`${action}?`}
      action={action}
      attempt={replay}
      onSubmit={() => replay.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        {`Sends "${kindLabel(delivery.kind)}" to ${name}, with the same id as before. A receiver that has seen the id ignores it. `}
        {isWaiting && "If it fails, all attempts begin again."}
      </p>
    </DialogForm>
  );
}
