import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { useList } from "../../api/queries.ts";
import type { Token } from "../../api/types.ts";
import { useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Empty, NoMatches } from "../../ui/states.tsx";
import { Choice } from "../choice.tsx";
import { OrganizationFilter } from "../organization-filter.tsx";
import { useFilters } from "../use-filters.ts";
import { columnsOf } from "./columns.tsx";
import { CreateToken } from "./create.tsx";
import { RevokeToken } from "./revoke.tsx";
import { RotateToken } from "./rotate.tsx";

const STATUSES = [
  ["active", "Active"],
  ["expired", "Expired"],
  ["revoked", "Revoked"],
] as const;
type Doing = { what: "create" } | { what: "rotate" | "revoke"; token: Token } | null;

export default function Tokens() {
  const { role } = useSession();
  const isOperator = role === "operator";
  const [filters, setFilters] = useFilters(["search", "organization_id", "status"]);
  const [doing, setDoing] = useState<Doing>(null);
  const list = useList<Token>("tokens", "/admin/v1/tokens", filters);
  const isFiltered = Object.values(filters).some((value) => value !== "");
  const clear = () => setFilters({ search: "", organization_id: "", status: "" });
  return (
    <Page
      title="Tokens"
      about={isOperator ? "API tokens and their limits" : "API tokens of your organization"}
      actions={
        isOperator && (
          <Button look="main" icon={Plus} onClick={() => setDoing({ what: "create" })}>
            Create token
          </Button>
        )
      }
    >
      <search className="toolbar" aria-label="Filter tokens">
        <SearchField label="Name, ID or prefix" value={filters.search} onValue={(search) => setFilters({ search })} />
        {isOperator && (
          <OrganizationFilter
            value={filters.organization_id}
            onValue={(organization_id) => setFilters({ organization_id })}
          />
        )}
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
          caption="Tokens"
          list={list}
          columns={columnsOf(isOperator, (what, token) => setDoing({ what, token }))}
          keyOf={({ id }) => id}
          empty={isFiltered ? <NoMatches icon={KeyRound} title="No matching tokens" onClear={clear} /> : <NoTokens />}
        />
      </Card>
      <Dialogs doing={doing} organizationId={filters.organization_id} onClose={() => setDoing(null)} />
    </Page>
  );
}

function NoTokens() {
  const { role } = useSession();
  return (
    <Empty icon={KeyRound} title="No tokens yet">
      {role === "operator"
        ? "Applications need a token to call models. Create one for the organization that pays."
        : "The operator of the service creates tokens for your organization."}
    </Empty>
  );
}

function Dialogs({ doing, organizationId, onClose }: { doing: Doing; organizationId: string; onClose: () => void }) {
  switch (doing?.what) {
    case "create":
      return <CreateToken organizationId={organizationId} onClose={onClose} />;
    case "rotate":
      return <RotateToken token={doing.token} onClose={onClose} />;
    case "revoke":
      return <RevokeToken token={doing.token} onClose={onClose} />;
    default:
      return null;
  }
}
