import { Ban, KeyRound, type LucideIcon, Pencil, Plus, RefreshCw } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { useList } from "../../api/queries.ts";
import type { Token } from "../../api/types.ts";
import { countOf, formatCredits } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { SearchField } from "../../ui/search-field.tsx";
import { Badge, Empty, NoMatches } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { Choice, useFilters } from "../filters.tsx";
import { limitsLabel } from "../form-fields.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { CreateToken, EditToken } from "./create.tsx";
import { SCOPE_LABELS } from "./draft.ts";
import { RevokeToken, RotateToken } from "./token-actions.tsx";

const STATUSES = {
  active: { label: "Active", tone: "good" },
  expired: { label: "Expired", tone: "warn" },
  revoked: { label: "Revoked", tone: "plain" },
} as const;
const STATUS_OPTIONS = Object.entries(STATUSES).map(([status, { label }]) => [status, label] as const);
type OpenDialog = { what: "create" } | { what: TokenAct; token: Token } | null;

export default function Tokens() {
  const { may, isServiceWide } = useAccess();
  const mayChange = may("tokens:write");
  const [filters, setFilters] = useFilters(["search", "organization_id", "status"]);
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const list = useList<Token>("tokens", "/admin/v1/tokens", filters);
  const isFiltered = Object.values(filters).some((value) => value !== "");
  const clear = () => setFilters({ search: "", organization_id: "", status: "" });
  return (
    <Page
      title="Tokens"
      about={isServiceWide ? "API tokens and their limits" : "API tokens of your organization"}
      actions={
        mayChange && (
          <Button look="main" icon={Plus} onClick={() => setOpenDialog({ what: "create" })}>
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
          columns={columnsOf({ isServiceWide, mayChange }, (what, token) => setOpenDialog({ what, token }))}
          keyOf={({ id }) => id}
          empty={isFiltered ? <NoMatches icon={KeyRound} title="No matching tokens" onClear={clear} /> : <NoTokens />}
        />
      </Card>
      <Dialogs openDialog={openDialog} organizationId={filters.organization_id} onClose={() => setOpenDialog(null)} />
    </Page>
  );
}

function NoTokens() {
  const { may } = useAccess();
  return (
    <Empty icon={KeyRound} title="No tokens yet">
      {may("tokens:write")
        ? "Applications need a token to call models. Create one for the organization that pays."
        : "The operator of the service creates tokens for your organization."}
    </Empty>
  );
}

function Dialogs({
  openDialog,
  organizationId,
  onClose,
}: {
  openDialog: OpenDialog;
  organizationId: string;
  onClose: () => void;
}) {
  switch (openDialog?.what) {
    case "create":
      return <CreateToken organizationId={organizationId} onClose={onClose} />;
    case "edit":
      return <EditToken token={openDialog.token} onClose={onClose} />;
    case "rotate":
      return <RotateToken token={openDialog.token} onClose={onClose} />;
    case "revoke":
      return <RevokeToken token={openDialog.token} onClose={onClose} />;
    default:
      return null;
  }
}

type TokenAct = "edit" | "rotate" | "revoke";
const ACTS = [
  ["edit", "Edit", Pencil],
  ["rotate", "Rotate", RefreshCw],
  ["revoke", "Revoke", Ban],
] as const satisfies readonly (readonly [TokenAct, string, LucideIcon])[];
type Act = (what: TokenAct, token: Token) => void;

export function columnsOf(shown: { isServiceWide: boolean; mayChange: boolean }, onAct: Act): Column<Token>[] {
  const columns: (Column<Token> | false)[] = [
    { head: "Token", cell: (token) => <Name token={token} /> },
    shown.isServiceWide && {
      head: "Organization",
      cell: ({ organization_name }) => <span className="wrap-anywhere">{organization_name}</span>,
    },
    { head: "Status", cell: ({ status }) => <Badge tone={STATUSES[status].tone}>{STATUSES[status].label}</Badge> },
    { head: "Permissions", cell: (token) => <Rights token={token} /> },
    { head: "Spending cap", cell: ({ cap }) => <Cap cap={cap} /> },
    { head: "Last used", cell: ({ last_used_at }) => <Ago at={last_used_at} /> },
    { head: "Expires", cell: ({ expires_at }) => <Ago at={expires_at} /> },
    shown.mayChange && { head: "Actions", right: true, cell: (token) => <Actions token={token} onAct={onAct} /> },
  ];
  return columns.filter((column) => column !== false);
}

function Name({ token: { id, name, prefix } }: { token: Token }) {
  return (
    <span className="cell-two">
      <Link className="row-link wrap-anywhere" href={`/requests?token_id=${encodeURIComponent(id)}`}>
        {name}
      </Link>
      <span className="mono faint">{prefix}…</span>
    </span>
  );
}

function Rights({ token: { scopes, models, limits } }: { token: Token }) {
  const labels = SCOPE_LABELS.filter(([scope]) => scopes.includes(scope)).map(([, label]) => label);
  const may = labels.length === SCOPE_LABELS.length ? "Full access" : labels.join(", ");
  const which = models === null ? "all models" : countOf(models.length, "model");
  return (
    <span className="cell-two" title={models?.join(", ")}>
      <span className="wrap-anywhere">{may}</span>
      <span className="small faint">
        {which}
        {limits !== null && `, ${limitsLabel(limits)}`}
      </span>
    </span>
  );
}

function Cap({ cap }: { cap: Token["cap"] }) {
  if (cap === null) return <span className="faint">None</span>;
  const share = cap.amount > 0 ? Math.min(1, (cap.spent + cap.held) / cap.amount) : 1;
  return (
    <span className="cell-two">
      <span className="figures nowrap">
        {formatCredits(cap.spent)} of {formatCredits(cap.amount)}
      </span>
      <span className="share" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
    </span>
  );
}

function Actions({ token, onAct }: { token: Token; onAct: Act }) {
  if (token.status !== "active") return null;
  return (
    <span className="row end">
      {ACTS.map(([act, label, icon]) => (
        <Button key={act} icon={icon} aria-label={`${label} ${token.name}`} onClick={() => onAct(act, token)}>
          {label}
        </Button>
      ))}
    </span>
  );
}
