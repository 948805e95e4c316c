import type { Overview as Figures } from "../../api/types.ts";
import { formatClock } from "../../format/times.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Page } from "../../ui/page.tsx";
import { useFilters } from "../filters.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { Troubles } from "../trouble/banners.tsx";
import { FirstSteps, useFirstSteps } from "./first-steps.tsx";
import { useUsage } from "./usage.tsx";

/** Balance, spend and traffic of a period. */
export default function Overview() {
  const { isServiceWide } = useAccess();
  const { organization } = useSession();
  const [filters, setFilters] = useFilters(["organization_id"]);
  const { figures, isFailing, choice, shown } = useUsage(filters.organization_id);
  const first = useFirstSteps(figures, filters.organization_id === "");
  return (
    <Page
      title="Overview"
      about={<Freshness figures={figures} />}
      actions={
        <>
          {isServiceWide && (
            <OrganizationFilter
              value={filters.organization_id}
              onValue={(organization_id) => setFilters({ organization_id })}
            />
          )}
          {choice}
        </>
      }
    >
      <Troubles
        organizationId={organization?.id ?? filters.organization_id}
        counts={figures?.organizations ?? null}
        isWaiting={(figures === undefined || first.isLoading) && !isFailing}
      >
        {first.steps !== null && <FirstSteps steps={first.steps} onEnd={first.end} />}
        {shown}
      </Troubles>
    </Page>
  );
}

function Freshness({ figures }: { figures: Figures | undefined }) {
  return (
    <span className="figures">
      {figures === undefined ? "Loading …" : `Updated at ${formatClock(figures.generated_at)}. Days are in UTC.`}
    </span>
  );
}
