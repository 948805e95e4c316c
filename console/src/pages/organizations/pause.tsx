import type { Organization } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Failure } from "../../ui/states.tsx";
import { useChange } from "./edit.tsx";

/** Asks once more, and says what it does. */
export function PauseOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const isPaused = organization.status === "paused";
  const change = useChange({ organization, onClose });
  return (
    <DialogForm
      title={`${isPaused ? "Resume" : "Pause"} ${organization.name}?`}
      action={isPaused ? "Resume" : "Pause"}
      danger={!isPaused}
      busy={change.isPending}
      failure={change.isError && <Failure error={change.error} />}
      onSubmit={() => change.mutate({ status: isPaused ? "active" : "paused" })}
      onClose={onClose}
    >
      {isPaused ? (
        <p>Its tokens work again from now on, against the credits that are left.</p>
      ) : (
        <p>
          Answers that are running are finished and charged. New requests of all its tokens are refused with 403
          organization_paused until it is resumed. Credits, tokens and limits stay as they are.
        </p>
      )}
    </DialogForm>
  );
}
