import { History } from "lucide-react";
import { useList } from "../../api/queries.ts";
import type { AuditEntry } from "../../api/types.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { OrganizationFilter } from "../organization-filter.tsx";
import { useFilters } from "../use-filters.ts";
import { differences } from "./differences.ts";
import { actionInWords, actorInWords, afterInWords } from "./words.ts";

const COLUMNS: readonly Column<AuditEntry>[] = [
  { head: "When", cell: ({ at }) => <Ago at={at} /> },
  {
    head: "Who",
    cell: ({ actor }) => (
      <span className="cell-two">
        <span>{actorInWords(actor)}</span>
        <span className="small faint wrap-anywhere">{actor.address ?? actor.id}</span>
      </span>
    ),
  },
  {
    head: "What",
    cell: (entry) => (
      <span className="cell-two">
        <span>
          <Badge>{actionInWords(entry.action)}</Badge>
        </span>
        <span className="mono faint wrap-anywhere">{entry.subject_id}</span>
        <span className="narrow-only">
          <Differences entry={entry} />
        </span>
      </span>
    ),
  },
  { head: "Change", wideOnly: true, cell: (entry) => <Differences entry={entry} /> },
];

function Differences({ entry }: { entry: AuditEntry }) {
  return differences(entry.before, afterInWords(entry)).map(({ name, from, to }) => (
    <div key={name} className="small wrap-anywhere">
      <span className="faint">{name}: </span>
      {from !== null && <del>{from}</del>} {to}
    </div>
  ));
}

/** Who changed what, and who signed in. */
export default function Changes() {
  const [filters, setFilters] = useFilters(["organization_id"]);
  const list = useList<AuditEntry>("audit", "/admin/v1/audit", filters);
  return (
    <Page
      title="Changes"
      about="Every change with the values before and after it, every sign-in, and every time stored prompts and answers were viewed."
      actions={
        <OrganizationFilter
          value={filters.organization_id}
          onValue={(organization_id) => setFilters({ organization_id })}
        />
      }
    >
      <Card flush>
        <Listing
          caption="Changes"
          list={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          empty={
            <Empty icon={History} title="No entries">
              Changes of organizations, tokens and credits are listed here, and sign-ins.
            </Empty>
          }
        />
      </Card>
    </Page>
  );
}
