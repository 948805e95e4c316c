import { Building2, Plus, UserPlus } from "lucide-react";
import { Link, Route, Switch } from "wouter";
import { useList } from "../../api/queries.ts";
import type { Organization } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Badge, Empty, NoMatches } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { Choice, useFilters } from "../filters.tsx";
import { NewCustomer } from "./new-customer.tsx";
import { OrganizationPage } from "./organization.tsx";
import { CreateOrganization } from "./organization-forms.tsx";

export default function Organizations() {
  return (
    <Switch>
      <Route path="/organizations/:id">{({ id }) => <OrganizationPage id={id} />}</Route>
      <Route>
        <OrganizationList />
      </Route>
    </Switch>
  );
}

const STATUSES = [
  ["active", "Active"],
  ["paused", "Paused"],
  ["closed", "Closed"],
] as const;

function OrganizationList() {
  const { may } = useAccess();
  const [{ create, ...filters }, setFilters] = useFilters(["search", "status", "create"]);
  const list = useList<Organization>("organizations", "/admin/v1/organizations", filters);
  const isFiltered = filters.search !== "" || filters.status !== "";
  const close = () => setFilters({ create: "" });
  const clear = () => setFilters({ search: "", status: "" });
  return (
    <Page
      title="Organizations"
      about="Customers and their balances"
      actions={
        may("organizations:write") && (
          <>
            <Button icon={Plus} onClick={() => setFilters({ create: "1" })}>
              Create organization
            </Button>
            <Button look="main" icon={UserPlus} onClick={() => setFilters({ create: "customer" })}>
              New customer
            </Button>
          </>
        )
      }
    >
      <search className="toolbar" aria-label="Filter organizations">
        <SearchField label="Name or ID" value={filters.search} onValue={(search) => setFilters({ search })} />
        <Choice
          label="Status"
          all="All statuses"
          value={filters.status}
          options={STATUSES}
          onValue={(status) => setFilters({ status })}
        />
      </search>
      <Card flush>
        <Listing
          caption="Organizations"
          list={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          empty={
            isFiltered ? (
              <NoMatches icon={Building2} title="No matching organizations" onClear={clear} />
            ) : (
              <Empty icon={Building2} title="No organizations yet">
                Create one, grant it credits, and create a token for it.
              </Empty>
            )
          }
        />
      </Card>
      {may("organizations:write") && create === "1" && <CreateOrganization onClose={close} />}
      {may("organizations:write") && create === "customer" && <NewCustomer onClose={close} />}
    </Page>
  );
}

const COLUMNS: readonly Column<Organization>[] = [
  {
    head: "Organization",
    cell: ({ id, name }) => (
      <span className="cell-two">
        <Link className="row-link wrap-anywhere" href={`/organizations/${encodeURIComponent(id)}`}>
          {name}
        </Link>
        <span className="mono faint wrap-anywhere">{id}</span>
      </span>
    ),
  },
  { head: "Status", cell: (organization) => <OrganizationBadge organization={organization} /> },
  { head: "Available", right: true, cell: (row) => <StandardCredits of={row} value={row.credits.available} /> },
  { head: "Held", right: true, cell: (row) => <StandardCredits of={row} value={row.credits.held} /> },
  { head: "Spent", right: true, cell: (row) => <StandardCredits of={row} value={row.credits.used} /> },
  { head: "Lasts", right: true, cell: ({ days_left }) => lasting(days_left) },
  { head: "Created", right: true, cell: ({ created_at }) => formatDate(created_at) },
];

/** Describes how long the credits last in a narrow column. */
function lasting(days: number | null): string {
  if (days === null) return "–";
  if (days > 730) return "Over 2 years";
  return days < 1 ? "Under 1 day" : countOf(Math.floor(days), "day");
}

/** The playground organization has no credits. */
function StandardCredits({ of, value }: { of: Organization; value: number }) {
  return of.kind === "playground" ? <span className="faint">–</span> : <Credits value={value} />;
}

export function OrganizationBadge({ organization: { kind, status, erased_at } }: { organization: Organization }) {
  if (status === "paused") return <Badge tone="warn">Paused</Badge>;
  if (status === "closed") return <Badge>{erased_at === null ? "Closed" : "Erased"}</Badge>;
  return kind === "playground" ? <Badge>Guests</Badge> : <Badge tone="good">Active</Badge>;
}
