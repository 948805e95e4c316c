import { useQuery } from "@tanstack/react-query";
import { BellRing, Plus } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { chosen, receivers } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Receiver } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { kindsLabel } from "./kinds.ts";
import { CreateReceiver } from "./receiver-forms.tsx";

/** Fetches the receivers of an organization, or all that the session may see. */
export function useReceivers(organizationId = "") {
  const query = useSteady(useQuery(receivers(organizationId)));
  const isComplete = { hasNextPage: false, isFetchingNextPage: false, fetchNextPage: () => undefined };
  return { ...query, ...isComplete, rows: query.data?.data };
}

export function receiverPath(id: string): string {
  return `/warnings/${encodeURIComponent(id)}`;
}

/** Receivers of warnings: those of an organization, or all that the session may see. */
export function Receivers({ organizationId }: { organizationId?: string }) {
  const { may, isServiceWide } = useAccess();
  const mayChange = may("receivers:write");
  const [isCreating, setCreating] = useState(false);
  const list = useReceivers(organizationId);
  return (
    <Card
      title="Receivers"
      about="Webhooks, chat channels and mail addresses that are warned"
      flush
      actions={
        mayChange && (
          <Button icon={Plus} onClick={() => setCreating(true)}>
            Add receiver
          </Button>
        )
      }
    >
      <Listing
        caption="Receivers"
        list={list}
        columns={columnsOf(isServiceWide && organizationId === undefined)}
        keyOf={({ id }) => id}
        skeletonRows={1}
        empty={
          <Empty icon={BellRing} title="No receivers">
            Add one to be warned before credits or a budget are used up, or a token expires.
          </Empty>
        }
      />
      {isCreating && <CreateReceiver organizationId={organizationId} onClose={() => setCreating(false)} />}
    </Card>
  );
}

function columnsOf(withOrganization: boolean): Column<Receiver>[] {
  const columns: (Column<Receiver> | false)[] = [
    {
      head: "Receiver",
      cell: ({ id, name, target }) => (
        <span className="cell-two">
          <Link className="row-link wrap-anywhere" href={receiverPath(id)}>
            {name}
          </Link>
          <span className="small faint wrap-anywhere">{target}</span>
        </span>
      ),
    },
    withOrganization && { head: "Events of", cell: ({ organization_id }) => <EventsOf id={organization_id} /> },
    { head: "Events", cell: ({ kinds }) => kindsLabel(kinds) },
    { head: "Status", cell: (receiver) => <ReceiverStatus receiver={receiver} /> },
    { head: "Created", cell: ({ created_at }) => <Ago at={created_at} /> },
  ];
  return columns.filter((column) => column !== false);
}

/** Name of the organization whose events a receiver gets. */
export function EventsOf({ id }: { id: string | null }) {
  const { isServiceWide } = useAccess();
  const named = useQuery({ ...chosen("organizations", id ?? ""), enabled: id !== null && isServiceWide });
  if (id === null) return "The whole service";
  if (!isServiceWide) return "Your organization";
  return <Link href={`/organizations/${encodeURIComponent(id)}?tab=warnings`}>{named.data?.name ?? id}</Link>;
}

const STATUSES = {
  active: { label: "Active", tone: "good" },
  failing: { label: "Failing", tone: "warn" },
  disabled: { label: "Disabled", tone: "plain" },
} as const;

export function ReceiverStatus({ receiver: { status, failing_since } }: { receiver: Receiver }) {
  const { label, tone } = STATUSES[status];
  return (
    <span className="cell-two">
      <Badge tone={tone}>{label}</Badge>
      {failing_since !== null && (
        <span className="small faint">
          Fails since <Ago at={failing_since} />
        </span>
      )}
    </span>
  );
}
