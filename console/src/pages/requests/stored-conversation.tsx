import { MessageSquareText } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { Link } from "wouter";
import type { RequestDetail } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Skeleton } from "../../ui/states.tsx";

const Conversation = lazy(() => import("./conversation.tsx"));

/** Section for the stored prompt and answer. They are fetched on demand only, because each view is logged. */
export function StoredConversation({ detail }: { detail: RequestDetail }) {
  const { may } = useAccess();
  const [isOpen, setOpen] = useState(false);
  const mayRead = detail.has_conversation && may("conversations:read");
  return (
    <section className="stack-small">
      <h3>Prompt and answer</h3>
      {!mayRead && <p className="soft">{reasonOf(detail, may("organizations:write"))}</p>}
      {mayRead && !isOpen && (
        <>
          <p className="soft">Stored. Viewing is logged.</p>
          <div>
            <Button icon={MessageSquareText} onClick={() => setOpen(true)}>
              Show prompt and answer
            </Button>
          </div>
        </>
      )}
      {mayRead && isOpen && (
        <Suspense fallback={<Skeleton height="8rem" />}>
          <Conversation detail={detail} />
        </Suspense>
      )}
    </section>
  );
}

/** Explains the reason that prompt and answer are not shown. */
function reasonOf(detail: RequestDetail, mayEnable: boolean): ReactNode {
  const { organization_id, status } = detail;
  if (detail.has_conversation) return "Stored. Only operators and auditors of the service can view them.";
  if (!detail.keeps_conversations) {
    const page = `/organizations/${encodeURIComponent(organization_id)}`;
    return (
      <>
        Prompts and answers are not stored for this organization.{" "}
        {mayEnable && (
          <>
            You can enable storage for new requests on the <Link href={page}>organization page</Link>.
          </>
        )}
      </>
    );
  }
  if (status === "running") return "They are stored when the request ends.";
  return "No data is stored for this request: it was sent before storage was enabled, its retention period is over, or its data was deleted or could not be stored.";
}
