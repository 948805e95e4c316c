import { MessageSquareText } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { Link } from "wouter";
import type { RequestDetail } from "../../api/types.ts";
import { useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Skeleton } from "../../ui/states.tsx";

const Conversation = lazy(() => import("./conversation.tsx"));

/** What was asked and answered, where it is kept: read on demand alone, because each reading is recorded. */
export function KeptConversation({ detail }: { detail: RequestDetail }) {
  const { role } = useSession();
  const [isOpen, setOpen] = useState(false);
  const mayRead = detail.has_conversation && role === "operator";
  return (
    <section className="stack-small">
      <h3>Prompt and answer</h3>
      {!mayRead && <p className="soft">{reasonOf(detail, role === "operator")}</p>}
      {mayRead && !isOpen && (
        <>
          <p className="soft">They are kept. That you read them is recorded.</p>
          <div>
            <Button icon={MessageSquareText} onClick={() => setOpen(true)}>
              Show prompt and answer
            </Button>
          </div>
        </>
      )}
      {mayRead && isOpen && (
        <Suspense fallback={<Skeleton height="8rem" />}>
          <Conversation id={detail.id} />
        </Suspense>
      )}
    </section>
  );
}

/** Why they are not shown. */
function reasonOf(detail: RequestDetail, isOperator: boolean): ReactNode {
  const { organization_id, status } = detail;
  if (detail.has_conversation) return "They are kept, for the operator of the service alone to read.";
  if (!detail.keeps_conversations) {
    const page = `/organizations/${encodeURIComponent(organization_id)}`;
    return (
      <>
        Prompts and answers are not kept for this organization.{" "}
        {isOperator && (
          <>
            That is turned on <Link href={page}>on its page</Link>, for requests from then on.
          </>
        )}
      </>
    );
  }
  if (status === "running") return "They are kept when the request has ended.";
  return "Nothing is kept of this request, though its organization has prompts and answers kept: it is older than that, or past its days, or was removed or dropped.";
}
