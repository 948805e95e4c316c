import { KeyRound, Plus } from "lucide-react";
import { Route, Switch } from "wouter";
import { useList } from "../../api/queries.ts";
import type { Token } from "../../api/types.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { NoMatches } from "../../ui/states.tsx";
import { Choice, useFilters } from "../filters.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { BoundsCard, useMayCreate } from "./bounds.tsx";
import { CreateToken } from "./create.tsx";
import { TokenPage } from "./token.tsx";
import { TOKEN_STATUSES, useTokenDialogs } from "./token-actions.tsx";
import { columnsOf, NoTokens } from "./token-table.tsx";

const STATUS_OPTIONS = Object.entries(TOKEN_STATUSES).map(([status, { label }]) => [status, label] as const);

/** The list of tokens, and the page of one. */
export default function Tokens() {
  return (
    <Switch>
      <Route path="/tokens/:id">{({ id }) => <TokenPage key={id} id={id} />}</Route>
      <Route>
        <TokenList />
      </Route>
    </Switch>
  );
}

function TokenList() {
  const { may, isServiceWide } = useAccess();
  const { organization } = useSession();
  const mayCreate = useMayCreate();
  const [{ create, ...filters }, setFilters] = useFilters(["search", "organization_id", "status", "create"]);
  const [dialog, open] = useTokenDialogs();
  const list = useList<Token>("tokens", "/admin/v1/tokens", filters);
  const isFiltered = Object.values(filters).some((value) => value !== "");
  const clear = () => setFilters({ search: "", organization_id: "", status: "" });
  return (
    <Page
      title="Tokens"
      about={aboutTokens(isServiceWide, may("all-tokens:read"))}
      actions={
        mayCreate && (
          <Button look="main" icon={Plus} onClick={() => setFilters({ create: "1" })}>
            Create token
          </Button>
        )
      }
    >
      <search className="toolbar" aria-label="Filter tokens">
        <SearchField label="Name, ID or prefix" value={filters.search} onValue={(search) => setFilters({ search })} />
        {isServiceWide && (
          <OrganizationFilter
            value={filters.organization_id}
            onValue={(organization_id) => setFilters({ organization_id })}
          />
        )}
        <Choice
          label="Status"
          all="All statuses"
          value={filters.status}
          options={STATUS_OPTIONS}
          onValue={(status) => setFilters({ status })}
        />
      </search>
      <Card flush>
        <Listing
          caption="Tokens"
          list={list}
          columns={columnsOf({ isServiceWide, mayChange: may("tokens:write") }, open)}
          keyOf={({ id }) => id}
          empty={isFiltered ? <NoMatches icon={KeyRound} title="No matching tokens" onClear={clear} /> : <NoTokens />}
        />
      </Card>
      {organization !== null && may("tokens:write") && <BoundsCard organizationId={organization.id} />}
      {mayCreate && create !== "" && (
        <CreateToken
          organizationId={organization?.id ?? filters.organization_id}
          onClose={() => setFilters({ create: "" })}
        />
      )}
      {dialog}
    </Page>
  );
}

function aboutTokens(isServiceWide: boolean, seesAll: boolean): string {
  if (isServiceWide) return "API tokens and their limits";
  return seesAll ? "API tokens of your organization" : "Your API tokens";
}
