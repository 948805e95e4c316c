import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { serviceFacts } from "../../api/queries.ts";
import type { ConversationRemoval, Organization } from "../../api/types.ts";
import { formatCount } from "../../format/numbers.ts";
import { daysLabel } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge } from "../../ui/states.tsx";
import { useChange } from "./organization-forms.tsx";

interface SectionProps {
  organization: Organization;
}
type OpenDialog = "switch" | "remove" | null;

/** Section that shows if prompts and answers are stored, with buttons to change that and to delete them. */
export function ConversationsSection({ organization }: SectionProps) {
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const [removed, setRemoved] = useState<number | null>(null);
  const isOn = organization.keeps_conversations;
  const days = useRetentionLabel();
  return (
    <Card
      title="Prompts and answers"
      actions={
        <>
          {may("conversations:delete") && <Button onClick={() => setOpenDialog("remove")}>Delete stored data</Button>}
          {may("organizations:write") && (
            <Button onClick={() => setOpenDialog("switch")}>{isOn ? "Disable storage" : "Enable storage"}</Button>
          )}
        </>
      }
    >
      <div className="stack-small">
        <div>{isOn ? <Badge tone="warn">Stored for {days}</Badge> : <Badge>Not stored</Badge>}</div>
        <p>
          {isOn
            ? "Prompts and answers are stored. Only operators and auditors can read them, on the page of each request. Viewing is logged in the audit log."
            : "Prompts and answers are not stored, except answers to requests with an Idempotency-Key, for 24 hours."}
          {organization.keeps_responses &&
            " Items of the Responses API are kept for some hours. Only requests of the same token can use them."}
        </p>
        {removed !== null && <p role="status">{formatCount(removed)} deleted.</p>}
      </div>
      {openDialog === "switch" && <SwitchStorage organization={organization} onClose={() => setOpenDialog(null)} />}
      {openDialog === "remove" && (
        <DeleteStored organization={organization} onDeleted={setRemoved} onClose={() => setOpenDialog(null)} />
      )}
    </Card>
  );
}

function useRetentionLabel(): string {
  const { data } = useQuery(serviceFacts);
  return data === undefined ? "a limited time" : daysLabel(data.conversation_days);
}

interface DialogProps extends SectionProps {
  onClose: () => void;
}

function SwitchStorage({ organization, onClose }: DialogProps) {
  const change = useChange({ organization, onClose });
  // The state when the dialog opened: another operator may change it in the meantime.
  const [isOn] = useState(organization.keeps_conversations);
  const days = useRetentionLabel();
  return (
    <DialogForm
      title={isOn ? "Stop storing prompts and answers?" : "Store prompts and answers?"}
      action={isOn ? "Disable storage" : "Enable storage"}
      attempt={change}
      onSubmit={() => change.mutate({ keeps_conversations: !isOn })}
      onClose={onClose}
    >
      {isOn ? (
        <p>
          New prompts and answers are not stored. Data that is already stored is kept for {days}, or until you delete
          it.
        </p>
      ) : (
        <p>
          Every request of {organization.name} is stored with its answer for {days}, including personal data. Only the
          operator can read it, and viewing is logged. Tokens are not stored. Inform the users of the organization.
        </p>
      )}
    </DialogForm>
  );
}

function DeleteStored({ organization, onDeleted, onClose }: DialogProps & { onDeleted: (count: number) => void }) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/conversations`;
  const remove = useAction(
    () => send<ConversationRemoval>("DELETE", path),
    ["requests", "audit"],
    ({ removed }) => {
      onDeleted(removed);
      onClose();
    },
  );
  return (
    <DialogForm
      title="Delete all stored prompts and answers?"
      action="Delete"
      danger
      attempt={remove}
      onSubmit={() => remove.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        All stored prompts and answers of {organization.name} are deleted immediately. This cannot be undone. The
        requests and their charges are kept.
        {organization.keeps_conversations && " New requests are stored again, unless you disable storage first."}
      </p>
    </DialogForm>
  );
}
