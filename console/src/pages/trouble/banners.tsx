import { useQuery } from "@tanstack/react-query";
import { CircleAlert, TriangleAlert } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { budgets, choicesOf, models, organization } from "../../api/queries.ts";
import type { Organization, Overview, Token } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Note, Skeleton } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { healthDetails, healthOf, isHeldBack, ResumeRoute, type Route } from "../models/health.tsx";
import {
  NOTICE_DAYS,
  type Trouble,
  troubleOfBudgets,
  troubleOfTokens,
  troublesOfAll,
  troublesOfOrganization,
} from "./troubles.ts";

const HOUR_MS = 3_600_000;
/** Links of one banner; more of them are counted. */
const ITEMS_MAX = 5;

interface TroublesProps {
  /** The organization whose troubles are shown; "" for those of the whole service. */
  organizationId: string;
  /** The counts of all organizations, where they are wanted and known. */
  counts?: Overview["organizations"];
  /** True until the counts are known. */
  isWaiting?: boolean;
  children: ReactNode;
}

/**
 * Shows what stops requests, or will soon, above the content of a page. The content waits for it, because a banner that
 * comes later would move everything below it.
 */
export function Troubles({ organizationId, counts = null, isWaiting = false, children }: TroublesProps) {
  const { troubles, routes, isLoading } = useTroubles(organizationId, counts);
  // Once shown, the content stays: it has open forms.
  const [isShown, setShown] = useState(false);
  if (!isShown && !isLoading && !isWaiting) setShown(true);
  if (!isShown) return <Skeleton height="24rem" />;
  return (
    <>
      {troubles.length + routes.length > 0 && (
        <section className="stack-small" aria-label="Problems">
          {routes.length > 0 && <RoutesBanner routes={routes} />}
          {troubles.map((trouble) => (
            <Banner key={trouble.title} trouble={trouble} />
          ))}
        </section>
      )}
      {children}
    </>
  );
}

/** Returns the troubles, the routes that are not called, and whether more of them may follow. */
function useTroubles(id: string, counts: Overview["organizations"]) {
  const { may, isServiceWide } = useAccess();
  const nowMs = useNow();
  const path = `/organizations/${encodeURIComponent(id)}`;
  const isOne = id !== "";
  // Rounded, so that the query stays the same for an hour.
  const noticeMs = (Math.ceil(nowMs / HOUR_MS) + NOTICE_DAYS * 24) * HOUR_MS;
  const expiring = { organization_id: id, status: "active", expires_before: new Date(noticeMs).toISOString() };
  const own = useQuery({ ...organization(id), enabled: isOne });
  const limits = useQuery({ ...budgets(`/admin/v1${path}/budgets`), enabled: isOne && may("budgets:read") });
  const tokens = useQuery({ ...choicesOf<Token>("tokens", expiring), enabled: may("tokens:read") });
  const paused = useQuery({
    ...choicesOf<Organization>("organizations", { status: "paused" }),
    enabled: !isOne && isServiceWide,
  });
  const catalog = useQuery({ ...models, enabled: !isOne && may("upstreams:read") });
  // A query that fails holds nothing up: its page shows the error where it matters.
  const isLoading = [own, limits, tokens, paused, catalog].some(
    (query) => query.isEnabled && query.isLoading && query.failureCount === 0,
  );
  const routes = (isOne ? [] : (catalog.data?.data ?? [])).flatMap((model) => model.routes ?? []);
  const troubles = [
    ...(isOne && own.data !== undefined ? troublesOfOrganization(own.data) : []),
    ...troublesOfAll(isOne ? null : counts, isOne ? [] : (paused.data?.data ?? [])),
    ...troubleOfBudgets(isOne ? (limits.data?.data ?? []) : [], isServiceWide ? `${path}?tab=budgets` : "/credits"),
    ...troubleOfTokens(tokens.data?.data ?? [], nowMs, isServiceWide && !isOne),
  ];
  const held = new Map(routes.filter((route) => isHeldBack(route, nowMs)).map((route) => [route.route, route]));
  return { troubles, routes: [...held.values()], isLoading };
}

export function Banner({ trouble: { tone, title, text, items } }: { trouble: Trouble }) {
  const Icon = tone === "bad" ? CircleAlert : TriangleAlert;
  return (
    <Note tone={tone}>
      <Icon size={16} aria-hidden="true" />
      <div className="notice-text">
        <strong>{title}</strong>
        {text && <p>{text}</p>}
        {items.length > 0 && (
          <ul className="notice-items">
            {items.slice(0, ITEMS_MAX).map((item) => (
              <li key={`${item.path} ${item.text}`}>
                <Link href={item.path}>{item.text}</Link>
              </li>
            ))}
            {items.length > ITEMS_MAX && <li>and {countOf(items.length - ITEMS_MAX, "other", "others")}</li>}
          </ul>
        )}
      </div>
    </Note>
  );
}

/** Routes that are not called for some or all organizations, each with a button that ends its pause. */
function RoutesBanner({ routes }: { routes: readonly Route[] }) {
  const nowMs = useNow();
  return (
    <Note tone="bad">
      <CircleAlert size={16} aria-hidden="true" />
      <div className="notice-text">
        <strong>{countOf(routes.length, "route is", "routes are")} down or paused</strong>
        <ul className="notice-items">
          {routes.slice(0, ITEMS_MAX).map((route) => (
            <li key={route.route}>
              <span className="mono">{route.route}</span>: {healthOf(route, nowMs).word.toLowerCase()},{" "}
              {healthDetails(route, nowMs)} <ResumeRoute route={route} />
            </li>
          ))}
          {routes.length > ITEMS_MAX && (
            <li>
              and <Link href="/models">{countOf(routes.length - ITEMS_MAX, "other", "others")}</Link>
            </li>
          )}
        </ul>
      </div>
    </Note>
  );
}
