import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { RotatedToken, Token } from "../../api/types.ts";
import { formatMoment } from "../../format/times.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField } from "../../ui/field.tsx";
import { Failure } from "../../ui/states.tsx";
import { Secret } from "./secret.tsx";

const OVERLAPS = [
  ["0", "None: the old one stops at once"],
  ["300", "5 minutes"],
  ["3600", "1 hour"],
  ["86400", "1 day"],
  ["604800", "7 days"],
] as const;

export function RotateToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const [overlap, setOverlap] = useState<(typeof OVERLAPS)[number][0]>("3600");
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}/rotate`;
  const rotate = useAction(
    () => send<RotatedToken>("POST", path, { overlap_seconds: Number(overlap) }),
    ["tokens", "overview"],
  );
  if (rotate.data !== undefined) {
    const endsAt = rotate.data.replaces.expires_at;
    return (
      <Secret title="Token rotated" token={rotate.data} onClose={onClose}>
        <p>
          {rotate.data.replaces.status === "active" && endsAt !== null
            ? `The old one works until ${formatMoment(endsAt)}.`
            : "The old one has stopped working."}
        </p>
      </Secret>
    );
  }
  return (
    <DialogForm
      title={`Rotate ${token.name}`}
      action="Rotate token"
      busy={rotate.isPending}
      failure={rotate.isError && <Failure error={rotate.error} />}
      onSubmit={() => rotate.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        A new token takes its place, with the same organization, scopes, models, limits and expiry. The old one goes on
        working for a while, so that nothing stops before the new one is in place. Both share one cap, where it has one.
      </p>
      <SelectField label="Overlap" value={overlap} options={OVERLAPS} onValue={setOverlap} />
    </DialogForm>
  );
}
