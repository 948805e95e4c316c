import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
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

type Rotation = { overlap_seconds: number };

export function RotateToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number][0]>("3600");
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/rotate`;
  const rotate = useAction(
    (rotation: Rotation, key) => send<RotatedToken>("POST", path, rotation, key),
    ["tokens", "overview"],
    (rotated) => showSecret({ title: "Token rotated", token: rotated, note: noteOf(rotated.replaces) }, onClose),
  );
  return (
    <DialogForm
      title={`Rotate ${token.name}`}
      action="Rotate token"
      attempt={rotate}
      onSubmit={() => rotate.mutate({ overlap_seconds: Number(overlap) })}
      onClose={onClose}
    >
      <p>
        A new token replaces it, with the same organization, scopes, models, limits and expiry. The old one keeps
        working during the overlap, so that you can deploy the new one first. Both share one spending cap.
      </p>
      <SelectField label="Overlap" value={overlap} options={OVERLAPS} onValue={setOverlap} />
    </DialogForm>
  );
}

/** How long the old token works. */
function noteOf({ status, expires_at }: Token): string {
  if (status !== "active" || expires_at === null) return "The old token has stopped working.";
  return `The old token works until ${formatMoment(expires_at)}.`;
}
