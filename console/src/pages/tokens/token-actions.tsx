import { Ban, type LucideIcon, Pencil, RefreshCw } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useAction } from "../../api/actions.ts";
import { ApiFailure, send } from "../../api/client.ts";
import type { RotatedToken, Token } from "../../api/types.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField } from "../../ui/field.tsx";
import { Facts } from "../../ui/page.tsx";
import { Badge } from "../../ui/states.tsx";
import { Ago } from "../../ui/values.tsx";
import { EditToken } from "./create.tsx";
import { showSecret } from "./secret.tsx";

const OVERLAPS = [
  ["0", "None: the old token stops immediately"],
  ["300", "5 minutes"],
  ["3600", "1 hour"],
  ["86400", "1 day"],
  ["604800", "7 days"],
] as const;

export const TOKEN_STATUSES = {
  active: { label: "Active", tone: "good" },
  expired: { label: "Expired", tone: "warn" },
  revoked: { label: "Revoked", tone: "plain" },
} as const;

export function StatusOfToken({ token: { status } }: { token: Token }) {
  const { tone, label } = TOKEN_STATUSES[status];
  return <Badge tone={tone}>{label}</Badge>;
}

type TokenAct = "edit" | "rotate" | "revoke";
const ACTS = [
  ["edit", "Edit", Pencil],
  ["rotate", "Rotate", RefreshCw],
  ["revoke", "Revoke", Ban],
] as const satisfies readonly (readonly [TokenAct, string, LucideIcon])[];
export type ActOnToken = (what: TokenAct, token: Token) => void;

/**
 * Buttons that change a token; nothing for one that has ended. The token of an identity can only be edited, also after its
 * expiry, and an owner can only revoke tokens of others.
 */
export function TokenActions({ token, onAct }: { token: Token; onAct: ActOnToken }) {
  const { may } = useAccess();
  const { person } = useSession();
  if (token.status !== "active" && token.kind === "secret") return null;
  const mayChange = may("tokens:unbounded") || token.created_by === person?.id;
  const acts = ACTS.filter(([act]) => (act === "edit" || token.kind === "secret") && (act === "revoke" || mayChange));
  return (
    <span className="row end">
      {acts.map(([act, label, icon]) => (
        <Button key={act} icon={icon} aria-label={`${label} ${token.name}`} onClick={() => onAct(act, token)}>
          {label}
        </Button>
      ))}
    </span>
  );
}

/** Returns the open form of a token, if any, and what opens one. */
export function useTokenDialogs(): [dialog: ReactNode, open: ActOnToken] {
  const [shown, setShown] = useState<{ what: TokenAct; token: Token } | null>(null);
  const Form = shown && { edit: EditToken, rotate: RotateToken, revoke: RevokeToken }[shown.what];
  const dialog = Form && <Form token={shown.token} onClose={() => setShown(null)} />;
  return [dialog, (what, token) => setShown({ what, token })];
}

type Rotation = { overlap_seconds: number; replace?: boolean };

export function RotateToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const { may } = useAccess();
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number][0]>("3600");
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/rotate`;
  const rotate = useAction(
    (rotation: Rotation, key) => send<RotatedToken>("POST", path, rotation, key),
    ["tokens", "overview"],
    (rotated) => {
      const note = noteOf(rotated.replaces);
      showSecret({ title: "Token rotated", token: rotated, note, showsRequests: may("requests:read") }, onClose);
    },
  );
  const wasRotated =
    token.successor_id !== null || (rotate.error instanceof ApiFailure && rotate.error.code === "already_rotated");
  return (
    <DialogForm
      title={`Rotate ${token.name}`}
      action={wasRotated ? "Replace new token" : "Rotate token"}
      attempt={rotate}
      onSubmit={() => rotate.mutate({ overlap_seconds: Number(overlap), ...(wasRotated && { replace: true }) })}
      onClose={onClose}
    >
      {wasRotated ? (
        <p>This token was already rotated. If the new token was never used, you can revoke it and create another.</p>
      ) : (
        <p>
          The new token has the same organization, scopes, models, limits and lifetime. The old token keeps working
          during the overlap, so that you can deploy the new one first. Both share one spending cap.
        </p>
      )}
      <SelectField label="Overlap" value={overlap} options={OVERLAPS} onValue={setOverlap} />
    </DialogForm>
  );
}

/** Describes the time until which the old token works. */
function noteOf({ status, expires_at }: Token): string {
  if (status !== "active" || expires_at === null) return "The old token has stopped working.";
  return `The old token works until ${formatMoment(expires_at)}.`;
}

export function RevokeToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/revoke`;
  const revoke = useAction((_: undefined, key) => send<Token>("POST", path, {}, key), ["tokens", "overview"], onClose);
  return (
    <DialogForm
      title={`Revoke ${token.name}?`}
      action="Revoke token"
      danger
      attempt={revoke}
      onSubmit={() => revoke.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        Requests with this token are refused with 401 within 1 second on one node and within 5 seconds on all nodes.
        Answers in progress are completed. This cannot be undone. To replace a token without downtime, rotate it.
      </p>
      <Facts
        facts={[
          ["Token", <span key="prefix" className="mono">{`${token.prefix}…`}</span>],
          ["Organization", token.organization_name],
          ["Last used", <Ago key="used" at={token.last_used_at} never="Never" />],
        ]}
      />
    </DialogForm>
  );
}
