import { useQuery } from "@tanstack/react-query";
import { CalendarX, Sprout } from "lucide-react";
import { Link } from "wouter";
import { type OverviewFilter, overview as overviewQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Overview as Figures } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Card } from "../../ui/page.tsx";
import { Empty, Note, QueryFailure } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { useFilters } from "../filters.tsx";
import { daysBefore, daysOfPeriod, PeriodChoice } from "../period.tsx";
import type { View } from "../requests/view.ts";
import { Charts } from "./charts.tsx";
import { Margins } from "./margins.tsx";
import { EndingCredits, Rankings, Refusals, RefusedOrganizations } from "./rankings.tsx";
import { Tiles } from "./tiles.tsx";

const RANGES = [
  ["1", "Today"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
  ["365", "Last 365 days"],
] as const;
const FIRST_PERIOD = "30";

/** Returns the usage of the period in the address, of an organization or of all (""), and the choice of the period. */
export function useUsage(organizationId: string) {
  const nowMs = useNow();
  const [filters, setFilters] = useFilters(["period"]);
  const period = daysOfPeriod(filters.period, nowMs) === null ? FIRST_PERIOD : filters.period;
  const days = daysOfPeriod(period, nowMs);
  const owner = { organization_id: organizationId || undefined };
  const query = useSteady(useQuery(overviewQuery({ ...days, ...owner })));
  const before = useQuery({ ...overviewQuery({ ...(days && daysBefore(days)), ...owner }), refetchInterval: false });
  const choice = (
    <PeriodChoice
      value={period}
      ranges={RANGES}
      nowMs={nowMs}
      onValue={(value) => setFilters({ period: value === FIRST_PERIOD ? "" : value })}
    />
  );
  const shown = (
    <>
      <QueryFailure query={query} />
      {(query.data !== undefined || !query.isError) && (
        <Content
          figures={query.data}
          before={before.isPlaceholderData ? undefined : (before.data?.totals ?? (before.isError ? null : undefined))}
          view={{ period, organization_id: organizationId }}
          day={days !== null && days.from === days.to ? days.from : null}
          filter={{ ...days, ...owner }}
        />
      )}
    </>
  );
  return { figures: query.data, isFailing: query.isError, choice, shown };
}

/** Usage of one organization, for its page. */
export function OrganizationUsage({ organizationId }: { organizationId: string }) {
  const { choice, shown } = useUsage(organizationId);
  return (
    <>
      <div className="toolbar">{choice}</div>
      {shown}
    </>
  );
}

interface ContentProps {
  figures: Figures | undefined;
  before: Figures["totals"] | undefined | null;
  view: Pick<View, "period" | "organization_id">;
  /** The only day of the period. */
  day: string | null;
  filter: OverviewFilter;
}

function Content({ figures, before, view, day, filter }: ContentProps) {
  const { may } = useAccess();
  return (
    <>
      <Tiles figures={figures} before={before} view={view} />
      {figures !== undefined && <EndingCredits organizations={figures.organizations} />}
      {figures !== undefined && figures.pending_days > 0 && (
        <Note>
          Older days are still being aggregated: {countOf(figures.pending_days, "day")} of this period not included yet.
        </Note>
      )}
      {figures !== undefined && hasNoTraffic(figures) ? (
        <NoTraffic figures={figures} />
      ) : (
        <>
          <Charts figures={figures} view={view} day={day} />
          {figures !== undefined && <Refusals refusals={figures.refusals} view={view} />}
          {figures !== undefined && <RefusedOrganizations organizations={figures.organizations} view={view} />}
          <Rankings figures={figures} view={view} />
          {may("upstreams:read") && <Margins filter={filter} />}
        </>
      )}
    </>
  );
}

/** True for a period without a request, not even a refused one. */
function hasNoTraffic({ totals }: Figures): boolean {
  return totals.requests === 0 && totals.refused === 0;
}

/** Says that the period has no requests; getting started where nothing was ever spent. */
function NoTraffic({ figures: { credits } }: { figures: Figures }) {
  const hasSpent = credits.used > 0 || credits.held > 0;
  return hasSpent ? (
    <Card>
      <Empty icon={CalendarX} title="No requests in this period">
        <p>Select a longer period to see earlier requests.</p>
      </Empty>
    </Card>
  ) : (
    <Start />
  );
}

/** Shown before the first request. */
function Start() {
  const { may } = useAccess();
  return (
    <Card>
      <Empty icon={Sprout} title="No requests yet">
        {may("playground:use") && (
          <p>
            Test a model in the <Link href="/playground">playground</Link>, which also shows the code for your
            application.
          </p>
        )}
      </Empty>
    </Card>
  );
}
