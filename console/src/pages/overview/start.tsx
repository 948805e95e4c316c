import { Sprout } from "lucide-react";
import { Link } from "wouter";
import { useSession } from "../../shell/session.ts";
import { Card } from "../../ui/page.tsx";
import { Empty } from "../../ui/states.tsx";

/** Nothing was asked yet: how the first request comes about. */
export function Start() {
  const { role } = useSession();
  return (
    <Card>
      <Empty icon={Sprout} title="No request in this range yet">
        {role === "operator" ? (
          <p>
            Create an <Link href="/organizations">organization</Link>, grant it credits, create a{" "}
            <Link href="/tokens">token</Link>, and send a request. Or ask a model in the{" "}
            <Link href="/playground">playground</Link>: it shows the code to call it, too.
          </p>
        ) : (
          <p>
            Ask a model in the <Link href="/playground">playground</Link>: it shows the code to call it from your own
            program, too.
          </p>
        )}
      </Empty>
    </Card>
  );
}
