import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { token as tokenQuery, useParts } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { SummedRequests, Token } from "../../api/types.ts";
import { countOf, formatAmount } from "../../format/numbers.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Samples } from "../../snippets/samples.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Card, Facts, Page } from "../../ui/page.tsx";
import { QueryFailure, Skeleton } from "../../ui/states.tsx";
import { Ago, useNow } from "../../ui/values.tsx";
import { limitsLabel } from "../limits-label.ts";
import { Budgets } from "../organizations/budgets.tsx";
import { PeriodChoice, timesOfPeriod } from "../period.tsx";
import { TimeChart } from "../requests/time-chart.tsx";
import { addCredits, merged, requestsPath } from "../requests/view.ts";
import { Banner } from "../trouble/banners.tsx";
import { troubleOfToken } from "../trouble/troubles.ts";
import { SCOPE_LABELS } from "./draft.ts";
import { SANDBOX_MODEL } from "./secret.tsx";
import { StatusOfToken, TokenActions, useTokenDialogs } from "./token-actions.tsx";

const RANGES = [
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
] as const;
const MESSAGES = [{ role: "user", content: "Hello, Tollgate!" }];

/** One token: its spend, requests, budgets, rights and settings, and how to use it. */
export function TokenPage({ id }: { id: string }) {
  const query = useSteady(useQuery(tokenQuery(id)));
  if (query.data !== undefined) return <Loaded token={query.data} />;
  return (
    <Page title="Token">
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="24rem" />}
    </Page>
  );
}

function Loaded({ token }: { token: Token }) {
  const { may, isServiceWide } = useAccess();
  const [dialog, open] = useTokenDialogs();
  const nowMs = useNow();
  return (
    <Page
      title={token.name}
      about={
        <span className="row row-tight">
          <span className="mono wrap-anywhere">{token.id}</span>
          <CopyIcon text={token.id} label="Copy ID" />
          <StatusOfToken token={token} />
        </span>
      }
      actions={may("tokens:write") && <TokenActions token={token} onAct={open} />}
    >
      {troubleOfToken(token, nowMs).map((trouble) => (
        <Banner key={trouble.title} trouble={trouble} />
      ))}
      {may("requests:read") && <Spend token={token} />}
      <Card title="Settings">
        <Facts facts={settingsOf(token, isServiceWide)} />
      </Card>
      <Budgets organizationId={token.organization_id} callerId={token.caller_id} />
      <Card title="How to use it">
        <div className="stack-small">
          <Samples withAgents body={{ model: token.models?.[0] ?? SANDBOX_MODEL, messages: MESSAGES }} />
        </div>
      </Card>
      {dialog}
    </Page>
  );
}

/** Spend of the token by day. Each bar and each figure leads to the requests behind it. */
function Spend({ token }: { token: Token }) {
  const [period, setPeriod] = useState("30");
  const nowMs = useNow();
  const view = { organization_id: token.organization_id, token_id: token.id, period };
  const filter = {
    token_id: token.id,
    organization_id: token.organization_id,
    by: "day",
    ...timesOfPeriod(period, nowMs),
  };
  const parts = useParts<SummedRequests>("/admin/v1/requests/sums", filter, { refetchMs: 30_000 });
  const days = merged(parts.rows ?? [], "day");
  const charged = days.reduce((sum, day) => addCredits(sum, day.charged), 0);
  const requests = days.reduce((sum, day) => sum + day.requests, 0);
  return (
    <Card
      title="Spend"
      about={
        <span role="status" className="figures">
          {parts.isComplete ? `${formatAmount(charged)} credits, ${countOf(requests, "ended request")}` : "Adding up …"}
        </span>
      }
      actions={
        <>
          <Link className="button button-plain" href={requestsPath(view)}>
            Requests
          </Link>
          <PeriodChoice value={period} ranges={RANGES} nowMs={nowMs} onValue={setPeriod} />
        </>
      }
    >
      <QueryFailure query={parts} />
      {!parts.isError && !parts.isComplete && <Skeleton height="16.6rem" />}
      {parts.isComplete && days.length === 0 && <p className="soft">No ended requests in this period.</p>}
      {parts.isComplete && days.length > 0 && (
        <TimeChart groups={days} by="day" view={view} firstMs={Date.parse(filter.from ?? "")} />
      )}
    </Card>
  );
}

function settingsOf(token: Token, mayOpenOrganization: boolean): (readonly [string, ReactNode])[] {
  const { organization_id, organization_name, scopes, models, limits, cap, pinned, successor_id } = token;
  const labels = SCOPE_LABELS.filter(([scope]) => scopes.includes(scope)).map(([, label]) => label);
  const organization = mayOpenOrganization ? (
    <Link key="organization" href={`/organizations/${encodeURIComponent(organization_id)}`}>
      {organization_name}
    </Link>
  ) : (
    organization_name
  );
  const pins = Object.entries(pinned ?? {});
  const used = cap && `${formatAmount(cap.spent)} spent, ${formatAmount(cap.held)} held of ${formatAmount(cap.amount)}`;
  return [
    ["Organization", organization],
    [
      "Prefix",
      <span key="prefix" className="mono">
        {token.prefix}…
      </span>,
    ],
    ["Scopes", labels.join(", ")],
    ["Models", models === null ? "All models" : models.join(", ")],
    ["Spending cap", used ?? "None"],
    ["Limits", limitsLabel(limits)],
    ["Pinned metadata", pins.length === 0 ? "None" : pins.map(([key, value]) => `${key}: ${value}`).join(", ")],
    ["Created", formatMoment(token.created_at)],
    ["Last used", <Ago key="used" at={token.last_used_at} />],
    ["Expires", token.expires_at === null ? "Never" : formatMoment(token.expires_at)],
    ...(token.revoked_at === null ? [] : [["Revoked", formatMoment(token.revoked_at)] as const]),
    ...(successor_id === null
      ? []
      : [
          [
            "Replaced by",
            <Link key="successor" className="mono" href={`/tokens/${encodeURIComponent(successor_id)}`}>
              {successor_id}
            </Link>,
          ] as const,
        ]),
  ];
}
