import { useQuery } from "@tanstack/react-query";
import { CalendarX, Sprout } from "lucide-react";
import { Link, useSearchParams } from "wouter";
import { overview as overviewQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Overview as Figures } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import { formatClock } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Card, Page } from "../../ui/page.tsx";
import { Empty, Failure, Note } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { daysOfPeriod, PeriodChoice } from "../period.tsx";
import { OrganizationFilter } from "../pick.tsx";
import { Charts } from "./charts.tsx";
import { EndingCredits, Rankings, Refusals } from "./rankings.tsx";
import { Tiles } from "./tiles.tsx";

const RANGES = [
  ["1", "Today"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
  ["365", "Last 365 days"],
] as const;
const FIRST_PERIOD = "30";

/** Balance, spend and traffic of a period. */
export default function Overview() {
  const { isServiceWide } = useAccess();
  const [params, setParams] = useSearchParams();
  const nowMs = useNow();
  const asked = params.get("period") ?? "";
  const period = daysOfPeriod(asked, nowMs) === null ? FIRST_PERIOD : asked;
  const organizationId = params.get("organization_id") ?? "";
  const set = (name: string, value: string, usual: string) =>
    setParams((before) => {
      const after = new URLSearchParams(before);
      if (value === usual) after.delete(name);
      else after.set(name, value);
      return after;
    });
  const days = daysOfPeriod(period, nowMs);
  const query = useSteady(useQuery(overviewQuery({ ...days, organization_id: organizationId || undefined })));
  return (
    <Page
      title="Overview"
      about={<Freshness figures={query.data} />}
      actions={
        <>
          {isServiceWide && (
            <OrganizationFilter value={organizationId} onValue={(id) => set("organization_id", id, "")} />
          )}
          <PeriodChoice
            value={period}
            ranges={RANGES}
            nowMs={nowMs}
            onValue={(value) => set("period", value, FIRST_PERIOD)}
          />
        </>
      }
    >
      {query.isError && <Failure error={query.error} onRetry={() => query.refetch()} retrying={query.isFetching} />}
      {(query.data !== undefined || !query.isError) && <Content figures={query.data} organizationId={organizationId} />}
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

function Content({ figures, organizationId }: { figures: Figures | undefined; organizationId: string }) {
  return (
    <>
      <Tiles figures={figures} />
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
          <Charts figures={figures} />
          {figures !== undefined && <Refusals refusals={figures.refusals} organizationId={organizationId} />}
          <Rankings figures={figures} />
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

/** Getting started: shown before the first request. */
function Start() {
  const { may } = useAccess();
  return (
    <Card>
      <Empty icon={Sprout} title="No requests yet">
        {may("organizations:write") ? (
          <p>
            Create an <Link href="/organizations">organization</Link>, grant it credits, create a{" "}
            <Link href="/tokens">token</Link>, and send a request. Or test a model in the{" "}
            <Link href="/playground">playground</Link>, which also shows the code for your application.
          </p>
        ) : (
          may("playground:use") && (
            <p>
              Test a model in the <Link href="/playground">playground</Link>, which also shows the code for your
              application.
            </p>
          )
        )}
      </Empty>
    </Card>
  );
}
