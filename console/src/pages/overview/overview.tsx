import type { Overview as Figures } from "../../api/types.ts";
import { formatClock } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Page } from "../../ui/page.tsx";
import { useFilters } from "../filters.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { useUsage } from "./usage.tsx";

/** Balance, spend and traffic of a period. */
export default function Overview() {
  const { isServiceWide } = useAccess();
  const [filters, setFilters] = useFilters(["organization_id"]);
  const { figures, choice, shown } = useUsage(filters.organization_id);
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
      {shown}
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
