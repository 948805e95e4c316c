import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { ApiFailure, send } from "../../api/client.ts";
import type { RotatedToken, Token } from "../../api/types.ts";
import { formatMoment } from "../../format/times.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField } from "../../ui/field.tsx";
import { showSecret } from "./shown-secret.ts";

const OVERLAPS = [
  ["0", "None: the old token stops immediately"],
  ["300", "5 minutes"],
  ["3600", "1 hour"],
  ["86400", "1 day"],
  ["604800", "7 days"],
] as const;

type Rotation = { overlap_seconds: number; replace?: boolean };

export function RotateToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number][0]>("3600");
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/rotate`;
  const rotate = useAction(
    (rotation: Rotation, key) => send<RotatedToken>("POST", path, rotation, key),
    ["tokens", "overview"],
    (rotated) => showSecret({ title: "Token rotated", token: rotated, note: noteOf(rotated.replaces) }, onClose),
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

/** How long the old token works. */
function noteOf({ status, expires_at }: Token): string {
  if (status !== "active" || expires_at === null) return "The old token has stopped working.";
  return `The old token works until ${formatMoment(expires_at)}.`;
}
