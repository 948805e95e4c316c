import { History } from "lucide-react";
import { useList } from "../../api/queries.ts";
import type { AuditEntry } from "../../api/types.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { useFilters } from "../filters.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { actionLabel, actorLabel, differences, valuesAfter } from "./entries.ts";

const COLUMNS: readonly Column<AuditEntry>[] = [
  { head: "Time", cell: ({ at }) => <Ago at={at} /> },
  {
    head: "Actor",
    cell: ({ actor }) => (
      <span className="cell-two">
        <span>{actorLabel(actor)}</span>
        <span className="small faint wrap-anywhere">{actor.address ?? actor.id}</span>
      </span>
    ),
  },
  {
    head: "Action",
    cell: (entry) => (
      <span className="cell-two">
        <span>
          <Badge>{actionLabel(entry.action)}</Badge>
        </span>
        <span className="mono faint wrap-anywhere">{entry.subject_id}</span>
      </span>
    ),
  },
  { head: "Changes", cell: (entry) => <Differences entry={entry} /> },
];

function Differences({ entry }: { entry: AuditEntry }) {
  return differences(entry.before, valuesAfter(entry)).map(({ name, from, to }) => (
    <div key={name} className="small wrap-anywhere">
      <span className="faint">{name}: </span>
      {from !== null && <del>{from}</del>} {to}
    </div>
  ));
}

/** Audit log: changes, sign-ins, and views of stored prompts and answers. */
export default function Changes() {
  const [filters, setFilters] = useFilters(["organization_id"]);
  const list = useList<AuditEntry>("audit", "/admin/v1/audit", filters);
  return (
    <Page
      title="Audit log"
      about="Changes with their values before and after, sign-ins, and views of stored prompts and answers"
      actions={
        <OrganizationFilter
          value={filters.organization_id}
          onValue={(organization_id) => setFilters({ organization_id })}
        />
      }
    >
      <Card flush>
        <Listing
          caption="Audit log"
          list={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          empty={
            <Empty icon={History} title="No entries">
              Changes to organizations, tokens, budgets and credits appear here, and so do sign-ins.
            </Empty>
          }
        />
      </Card>
    </Page>
  );
}
