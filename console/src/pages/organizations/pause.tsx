import { useState } from "react";
import type { Organization } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { useChange } from "./edit.tsx";

/** Asks for confirmation, and says what changes. */
export function PauseOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  // As it was when the dialog opened: another operator may change it meanwhile.
  const [isPaused] = useState(organization.status === "paused");
  const change = useChange({ organization, onClose });
  return (
    <DialogForm
      title={`${isPaused ? "Resume" : "Pause"} ${organization.name}?`}
      action={isPaused ? "Resume" : "Pause"}
      danger={!isPaused}
      attempt={change}
      onSubmit={() => change.mutate({ status: isPaused ? "active" : "paused" })}
      onClose={onClose}
    >
      {isPaused ? (
        <p>Its tokens can be used again.</p>
      ) : (
        <p>
          Answers in progress are completed and charged. New requests with its tokens are refused with 403
          organization_paused until you resume it. Credits, tokens and limits stay as they are.
        </p>
      )}
    </DialogForm>
  );
}
