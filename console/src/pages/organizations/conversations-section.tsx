import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { serviceFacts } from "../../api/queries.ts";
import type { ConversationRemoval, Organization } from "../../api/types.ts";
import { formatCount } from "../../format/numbers.ts";
import { daysInWords } from "../../format/times.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Failure } from "../../ui/states.tsx";
import { useChange } from "./edit.tsx";

interface SectionProps {
  organization: Organization;
}
type Doing = "switch" | "remove" | null;

/** Whether what is asked and answered is kept, and how to change that. */
export function ConversationsSection({ organization }: SectionProps) {
  const [doing, setDoing] = useState<Doing>(null);
  const [removed, setRemoved] = useState<number | null>(null);
  const isOn = organization.keeps_conversations;
  const days = useDaysInWords();
  return (
    <Card
      title="Prompts and answers"
      actions={
        <>
          <Button onClick={() => setDoing("remove")}>Remove what is kept</Button>
          <Button onClick={() => setDoing("switch")}>{isOn ? "Stop keeping them" : "Keep them"}</Button>
        </>
      }
    >
      <div className="stack-small">
        <div>{isOn ? <Badge tone="warn">kept for {days}</Badge> : <Badge>not kept</Badge>}</div>
        <p>
          {isOn
            ? "What its callers write and what models answer is stored. Only the operator can read it, on the page of each request, and each reading stands under Changes."
            : "What its callers write and what models answer is not stored, but for an answer under an Idempotency-Key, for 24 hours."}
        </p>
        {removed !== null && <p role="status">{formatCount(removed)} removed.</p>}
      </div>
      {doing === "switch" && <SwitchKeeping organization={organization} onClose={() => setDoing(null)} />}
      {doing === "remove" && (
        <RemoveKept organization={organization} onRemoved={setRemoved} onClose={() => setDoing(null)} />
      )}
    </Card>
  );
}

function useDaysInWords(): string {
  const { data } = useQuery(serviceFacts);
  return data === undefined ? "some days" : daysInWords(data.conversation_days);
}

interface DialogProps extends SectionProps {
  onClose: () => void;
}

/** Asks once more, and says what it does. */
function SwitchKeeping({ organization, onClose }: DialogProps) {
  const change = useChange({ organization, onClose });
  const isOn = organization.keeps_conversations;
  const days = useDaysInWords();
  return (
    <DialogForm
      title={`${isOn ? "Stop keeping" : "Keep"} prompts and answers?`}
      action={isOn ? "Stop keeping them" : "Keep them"}
      busy={change.isPending}
      failure={change.isError && <Failure error={change.error} />}
      onSubmit={() => change.mutate({ keeps_conversations: !isOn })}
      onClose={onClose}
    >
      {isOn ? (
        <p>
          From now on nothing that is asked or answered is stored. What was kept stays until its {days} are over, or
          until you remove it.
        </p>
      ) : (
        <p>
          From now on every request of all tokens of {organization.name} is stored with its answer, for {days}: whatever
          its callers write, personal data too. Only the operator can read it, and each reading is recorded. The tokens
          themselves are not stored. Tell those who use it.
        </p>
      )}
    </DialogForm>
  );
}

function RemoveKept({ organization, onRemoved, onClose }: DialogProps & { onRemoved: (count: number) => void }) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/conversations`;
  const remove = useAction(
    () => send<ConversationRemoval>("DELETE", path),
    ["requests", "audit"],
    ({ removed }) => {
      onRemoved(removed);
      onClose();
    },
  );
  return (
    <DialogForm
      title="Remove all prompts and answers?"
      action="Remove them"
      danger
      busy={remove.isPending}
      failure={remove.isError && <Failure error={remove.error} />}
      onSubmit={() => remove.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        Every prompt and answer that is kept of {organization.name} is removed at once and for good. The requests
        themselves and what they were charged stay.
        {organization.keeps_conversations && " What is asked from then on is kept again, unless you stop that first."}
      </p>
    </DialogForm>
  );
}
