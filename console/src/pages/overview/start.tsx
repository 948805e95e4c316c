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
      <Empty icon={Sprout} title="No requests in this period">
        {role === "operator" ? (
          <p>
            Create an <Link href="/organizations">organization</Link>, grant it credits, create a{" "}
            <Link href="/tokens">token</Link>, and send a request. Or test a model in the{" "}
            <Link href="/playground">playground</Link>, which also shows the code for your application.
          </p>
        ) : (
          <p>
            Test a model in the <Link href="/playground">playground</Link>, which also shows the code for your
            application.
          </p>
        )}
      </Empty>
    </Card>
  );
}
