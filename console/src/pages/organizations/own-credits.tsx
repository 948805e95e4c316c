import { useQuery } from "@tanstack/react-query";
import { organization as organizationQuery } from "../../api/queries.ts";
import { useSession } from "../../shell/session.ts";
import { Page } from "../../ui/page.tsx";
import { Failure, Skeleton } from "../../ui/states.tsx";
import { CreditsSection } from "./credits-section.tsx";

/** A member's view of the credits that their tokens spend. */
export default function OwnCredits() {
  const { organization } = useSession();
  const query = useQuery(organizationQuery(organization?.id ?? ""));
  return (
    <Page title="Credits" about={organization?.name}>
      {query.isError && <Failure error={query.error} onRetry={() => query.refetch()} retrying={query.isFetching} />}
      {query.isPending && <Skeleton height="24rem" />}
      {query.data && <CreditsSection organization={query.data} mayChange={false} />}
    </Page>
  );
}
