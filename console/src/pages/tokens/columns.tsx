import { Ban, RefreshCw } from "lucide-react";
import { Link } from "wouter";
import type { Token } from "../../api/types.ts";
import { countOf, formatCredits } from "../../format/numbers.ts";
import { IconButton } from "../../ui/button.tsx";
import { Badge } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago } from "../../ui/values.tsx";
import { limitsInWords } from "../limits-fields.tsx";
import { SCOPE_WORDS } from "./draft.ts";

const STATUSES = {
  active: { tone: "good", word: "Active" },
  expired: { tone: "warn", word: "Expired" },
  revoked: { tone: "plain", word: "Revoked" },
} as const;

type Act = (what: "rotate" | "revoke", token: Token) => void;

export function columnsOf(isOperator: boolean, onAct: Act): Column<Token>[] {
  const columns: (Column<Token> | false)[] = [
    { head: "Token", cell: (token) => <Name token={token} /> },
    isOperator && {
      head: "Organization",
      wideOnly: true,
      cell: ({ organization_name }) => <span className="wrap-anywhere">{organization_name}</span>,
    },
    { head: "Status", cell: ({ status }) => <Badge tone={STATUSES[status].tone}>{STATUSES[status].word}</Badge> },
    { head: "Permissions", wideOnly: true, cell: (token) => <Rights token={token} /> },
    { head: "Spending cap", wideOnly: true, cell: ({ cap }) => <Cap cap={cap} /> },
    { head: "Last used", wideOnly: true, cell: ({ last_used_at }) => <Ago at={last_used_at} /> },
    { head: "Expires", wideOnly: true, cell: ({ expires_at }) => <Ago at={expires_at} /> },
    isOperator && { head: "Actions", right: true, cell: (token) => <Actions token={token} onAct={onAct} /> },
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
  const labels = SCOPE_WORDS.filter(([scope]) => scopes.includes(scope)).map(([, label]) => label);
  const may = labels.length === SCOPE_WORDS.length ? "Full access" : labels.join(", ");
  const which = models === null ? "all models" : countOf(models.length, "model");
  return (
    <span className="cell-two" title={models?.join(", ")}>
      <span className="wrap-anywhere">{may}</span>
      <span className="small faint">
        {which}
        {limits !== null && `, ${limitsInWords(limits)}`}
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
      <IconButton icon={RefreshCw} label={`Rotate ${token.name}`} onClick={() => onAct("rotate", token)} />
      <IconButton icon={Ban} label={`Revoke ${token.name}`} onClick={() => onAct("revoke", token)} />
    </span>
  );
}
