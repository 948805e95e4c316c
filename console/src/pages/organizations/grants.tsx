import { Coins, Undo2 } from "lucide-react";
import { useList } from "../../api/queries.ts";
import type { Grant } from "../../api/types.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago, Credits } from "../../ui/values.tsx";
import { referenceLabel } from "./statement-values.ts";

const STATUSES = {
  active: { label: "Active", tone: "good" },
  pending: { label: "Pending", tone: "accent" },
  expired: { label: "Expired", tone: "plain" },
} as const;

const COLUMNS: readonly Column<Grant>[] = [
  {
    head: "Grant",
    cell: ({ id, reference, source }) => (
      <span className="cell-two">
        <span className="wrap-anywhere">
          {reference ? referenceLabel(reference) : source === "credit" ? "Refund" : "No reference"}
        </span>
        <span className="mono faint wrap-anywhere">{id}</span>
      </span>
    ),
  },
  { head: "Status", cell: ({ state }) => <Badge tone={STATUSES[state].tone}>{STATUSES[state].label}</Badge> },
  { head: "Amount", right: true, cell: ({ amount }) => <Credits value={amount} /> },
  { head: "Remaining", right: true, cell: ({ remaining }) => <Credits value={remaining} /> },
  { head: "Revoked", right: true, cell: ({ revoked }) => <Credits value={revoked} /> },
  { head: "Priority", right: true, cell: ({ priority }) => priority },
  { head: "Effective", cell: ({ effective_at }) => <Ago at={effective_at} /> },
  { head: "Expires", cell: ({ expires_at }) => <Ago at={expires_at} /> },
];

interface GrantsProps {
  organizationId: string;
  /** Absent for members, who have read-only access. */
  onRevoke: ((grant: Grant) => void) | undefined;
}

export function Grants({ organizationId, onRevoke }: GrantsProps) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/grants`;
  const list = useList<Grant>("organizations", path, {});
  return (
    <Listing
      caption="Grants"
      list={list}
      columns={onRevoke === undefined ? COLUMNS : [...COLUMNS, actions(onRevoke)]}
      keyOf={({ id }) => id}
      skeletonRows={2}
      empty={
        <Empty icon={Coins} title="No credits yet">
          {onRevoke
            ? "Requests are refused with 402 until you grant credits."
            : "The operator of the service grants credits."}
        </Empty>
      }
    />
  );
}

function actions(onRevoke: (grant: Grant) => void): Column<Grant> {
  return {
    head: "Actions",
    right: true,
    cell: (grant) =>
      grant.remaining > 0 && (
        <Button
          icon={Undo2}
          aria-label={`Revoke credits of ${referenceLabel(grant.reference ?? grant.id)}`}
          onClick={() => onRevoke(grant)}
        >
          Revoke
        </Button>
      ),
  };
}
