import { KeyRound, Plus } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { useList } from "../../api/queries.ts";
import type { Token } from "../../api/types.ts";
import { countOf, formatCredits } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { limitsLabel } from "../limits-label.ts";
import { useMayCreate } from "./bounds.tsx";
import { CreateToken } from "./create.tsx";
import { SCOPE_LABELS } from "./draft.ts";
import { type ActOnToken, StatusOfToken, TokenActions, useTokenDialogs } from "./token-actions.tsx";

/** Tokens of one organization, for its page. */
export function OrganizationTokens({ organizationId }: { organizationId: string }) {
  const { may } = useAccess();
  const [isCreating, setCreating] = useState(false);
  const [dialog, open] = useTokenDialogs();
  const list = useList<Token>("tokens", "/admin/v1/tokens", { organization_id: organizationId });
  return (
    <Card
      title="Tokens"
      flush
      actions={
        may("tokens:write") && (
          <Button look="main" icon={Plus} onClick={() => setCreating(true)}>
            Create token
          </Button>
        )
      }
    >
      <Listing
        caption="Tokens"
        list={list}
        columns={columnsOf({ isServiceWide: false, mayChange: may("tokens:write") }, open)}
        keyOf={({ id }) => id}
        empty={<NoTokens />}
      />
      {isCreating && <CreateToken organizationId={organizationId} onClose={() => setCreating(false)} />}
      {dialog}
    </Card>
  );
}

export function NoTokens() {
  const { isServiceWide } = useAccess();
  const mayCreate = useMayCreate();
  const forWhom = isServiceWide ? "Create one for the organization that pays." : "Create one: your organization pays.";
  return (
    <Empty icon={KeyRound} title="No tokens yet">
      {mayCreate
        ? `Applications need a token to call models. ${forWhom}`
        : "The operator of the service creates tokens for your organization."}
    </Empty>
  );
}

export function columnsOf(shown: { isServiceWide: boolean; mayChange: boolean }, onAct: ActOnToken): Column<Token>[] {
  const columns: (Column<Token> | false)[] = [
    { head: "Token", cell: (token) => <Name token={token} /> },
    shown.isServiceWide && {
      head: "Organization",
      cell: ({ organization_name }) => <span className="wrap-anywhere">{organization_name}</span>,
    },
    { head: "Status", cell: (token) => <StatusOfToken token={token} /> },
    { head: "Permissions", cell: (token) => <Rights token={token} /> },
    { head: "Spending cap", cell: ({ cap }) => <Cap cap={cap} /> },
    { head: "Last used", cell: ({ last_used_at }) => <Ago at={last_used_at} /> },
    { head: "Expires", cell: ({ expires_at }) => <Ago at={expires_at} /> },
    shown.mayChange && { head: "Actions", right: true, cell: (token) => <TokenActions token={token} onAct={onAct} /> },
  ];
  return columns.filter((column) => column !== false);
}

function Name({ token: { id, name, prefix } }: { token: Token }) {
  return (
    <span className="cell-two">
      <Link className="row-link wrap-anywhere" href={`/tokens/${encodeURIComponent(id)}`}>
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
