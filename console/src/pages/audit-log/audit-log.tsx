import { History } from "lucide-react";
import { Link } from "wouter";
import { useList } from "../../api/queries.ts";
import type { AuditEntry } from "../../api/types.ts";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Badge, Empty, NoMatches } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Moment, useNow } from "../../ui/values.tsx";
import { Choice, ExportLinks, useFilters } from "../filters.tsx";
import { PeriodChoice, timesOfPeriod } from "../period.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { ACTION_OPTIONS, actionLabel, pathOfSubject } from "./actions.ts";
import { actorLabel, differences, valuesAfter } from "./entries.ts";

const FILTER_NAMES = ["organization_id", "action", "actor", "subject_id", "period"] as const;
type Filters = Record<(typeof FILTER_NAMES)[number], string>;

const RANGES = [
  ["", "All time"],
  ["24h", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
] as const;

const COLUMNS: readonly Column<AuditEntry>[] = [
  { head: "Time", cell: ({ at }) => <Moment at={at} /> },
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
        <Subject entry={entry} />
      </span>
    ),
  },
  { head: "Changes", cell: (entry) => <Differences entry={entry} /> },
];

/** Id of what was changed, which leads to its page, or to that of its organization. */
function Subject({ entry }: { entry: AuditEntry }) {
  const path = pathOfSubject(entry);
  const name = entry.subject_id ?? entry.organization_id;
  if (name === null || path === null) return <span className="mono faint wrap-anywhere">{name}</span>;
  return (
    <Link className="mono wrap-anywhere" href={path}>
      {name}
    </Link>
  );
}

function Differences({ entry }: { entry: AuditEntry }) {
  return differences(entry.before, valuesAfter(entry)).map(({ name, from, to }) => (
    <div key={name} className="small wrap-anywhere">
      <span className="faint">{name}: </span>
      {from !== null && to !== "" && <span className="faint">from {from} to </span>}
      {to === "" ? `was ${from}` : to}
    </div>
  ));
}

/** Audit log: changes, sign-ins, and views of stored prompts and answers. */
export default function AuditLog() {
  const [filters, setFilters] = useFilters(FILTER_NAMES);
  const { period, ...rest } = filters;
  const set = Object.entries(rest).filter(([, value]) => value !== "");
  const filter = { ...Object.fromEntries(set), ...timesOfPeriod(period, useNow()) };
  const list = useList<AuditEntry>("audit", "/admin/v1/audit", filter);
  const clear = () => setFilters({ organization_id: "", action: "", actor: "", subject_id: "", period: "" });
  return (
    <Page
      title="Audit log"
      about="Changes with their values before and after, sign-ins, and views of stored prompts and answers"
      actions={<ExportLinks path="/admin/v1/audit" filter={filter} />}
    >
      <FilterFields filters={filters} onFilters={setFilters} />
      <Card flush>
        <Listing
          caption="Audit log"
          list={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          empty={
            Object.keys(filter).length > 0 ? (
              <NoMatches icon={History} title="No matching entries" onClear={clear} />
            ) : (
              <Empty icon={History} title="No entries">
                Changes to organizations, tokens, budgets and credits appear here, and so do sign-ins.
              </Empty>
            )
          }
        />
      </Card>
    </Page>
  );
}

function FilterFields({ filters, onFilters }: { filters: Filters; onFilters: (changes: Partial<Filters>) => void }) {
  return (
    <search className="toolbar" aria-label="Filter the audit log">
      <SearchField label="Actor: name, ID or role" value={filters.actor} onValue={(actor) => onFilters({ actor })} />
      <SearchField
        label="ID of what was changed"
        value={filters.subject_id}
        onValue={(subject_id) => onFilters({ subject_id })}
      />
      <OrganizationFilter
        value={filters.organization_id}
        onValue={(organization_id) => onFilters({ organization_id })}
      />
      <Choice
        label="Action"
        all="All actions"
        value={filters.action}
        options={ACTION_OPTIONS}
        onValue={(action) => onFilters({ action })}
      />
      <PeriodChoice
        value={filters.period}
        ranges={RANGES}
        nowMs={useNow()}
        onValue={(period) => onFilters({ period })}
      />
    </search>
  );
}
