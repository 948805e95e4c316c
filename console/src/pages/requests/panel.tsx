import { useQuery } from "@tanstack/react-query";
import { HandHeart } from "lucide-react";
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { request } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { RequestDetail } from "../../api/types.ts";
import { formatCount, formatDuration } from "../../format/numbers.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Facts } from "../../ui/page.tsx";
import { Badge, QueryFailure, Skeleton, titleOfCode } from "../../ui/states.tsx";
import { RefundForm } from "../organizations/booking-forms.tsx";
import { Costs } from "./costs.tsx";
import { adviceOf, STATUS_DESCRIPTIONS, StatusBadge } from "./status.tsx";
import { StoredConversation } from "./stored-conversation.tsx";
import { addCredits } from "./view.ts";

/** Details of a request. */
export function RequestPanel({ id, onClose }: { id: string; onClose: () => void }) {
  const query = useSteady(useQuery(request(id)));
  return (
    <Dialog title="Request" side onClose={onClose}>
      <div className="dialog-body">
        <QueryFailure query={query} />
        {query.isPending && <Skeleton height="20rem" />}
        {query.data && <Explained detail={query.data} />}
      </div>
    </Dialog>
  );
}

function Explained({ detail }: { detail: RequestDetail }) {
  const { status, failure, refusal, metadata } = detail;
  if (refusal !== null) return <Refused detail={detail} refusal={refusal} />;
  return (
    <>
      <div className="stack-small">
        <div className="row">
          <StatusBadge status={status} />
          {failure !== null && <Badge tone="bad">{titleOfCode(failure)}</Badge>}
          {detail.is_streamed !== null && <Badge>{detail.is_streamed ? "Streamed" : "Not streamed"}</Badge>}
          {detail.is_idempotent && <Badge>Idempotency-Key: answer stored for 24 hours</Badge>}
        </div>
        <p className="soft">{STATUS_DESCRIPTIONS[status]}</p>
        <Refund detail={detail} />
        {status === "failed" && <p className="soft">{failureText(detail)}</p>}
      </div>
      <Identity detail={detail} />
      <Costs detail={detail} />
      <Attempts detail={detail} />
      <Timings detail={detail} />
      {metadata !== null && Object.keys(metadata).length > 0 && (
        <section className="stack-small">
          <h3>Metadata</h3>
          <Facts facts={Object.entries(metadata)} />
        </section>
      )}
      <StoredConversation detail={detail} />
    </>
  );
}

/** Button and form that refund what was charged and not refunded yet; nothing where that is nothing. */
function Refund({ detail }: { detail: RequestDetail }) {
  const { may } = useAccess();
  const [isOpen, setOpen] = useState(false);
  const { id, organization_id, organization_name, charged, credited } = detail;
  const left = addCredits(charged, -credited);
  // The form that has just booked the rest stays until it closes itself.
  if (!may("credits:write") || (left <= 0 && !isOpen)) return null;
  return (
    <div>
      <Button icon={HandHeart} onClick={() => setOpen(true)}>
        Refund
      </Button>
      {isOpen && (
        <RefundForm
          organization={{ id: organization_id, name: organization_name }}
          charge={{ requestId: id, left }}
          onClose={() => setOpen(false)}
        />
      )}
    </div>
  );
}

/** Says what a failed request cost, and what to do. */
function failureText({ charged, failure }: RequestDetail): string {
  const cost = charged === 0 ? "Nothing was charged." : "The input and the output until then were charged.";
  return [cost, failure !== null && adviceOf(failure)].filter(Boolean).join(" ");
}

function Refused({ detail, refusal }: { detail: RequestDetail; refusal: NonNullable<RequestDetail["refusal"]> }) {
  const { status, message, endpoint, count } = refusal;
  return (
    <>
      <div className="stack-small">
        <div className="row">
          <StatusBadge status={detail.status} />
          <Badge tone="bad">
            {status} {titleOfCode(detail.failure ?? "refused")}
          </Badge>
        </div>
        <p className="soft">{STATUS_DESCRIPTIONS.refused}</p>
        {detail.failure !== null && <p className="soft">{adviceOf(detail.failure)}</p>}
      </div>
      <Facts
        facts={[
          ["Error message", message],
          ["Error code", <code key="code">{detail.failure}</code>],
          ["Endpoint", endpoint],
          ["Time", formatMoment(detail.created_at)],
          ["Requests", count === 1 ? "1" : `${formatCount(count)} with the same error; the first one is shown`],
        ]}
      />
      <Identity detail={detail} />
    </>
  );
}

function Identity({ detail }: { detail: RequestDetail }) {
  const withCopy = (text: string, label: string) => (
    <span className="row row-tight">
      <span className="mono wrap-anywhere">{text}</span>
      <CopyIcon text={text} label={label} />
    </span>
  );
  return (
    <Facts
      facts={[
        ["Request ID", withCopy(detail.request_id, "Copy request ID")],
        ["Organization", <OrganizationLink key="organization" detail={detail} />],
        [
          "Token",
          <Link key="token" href={`/tokens/${encodeURIComponent(detail.token_id)}`}>
            {detail.token_name ?? detail.token_id}
          </Link>,
        ],
        ["Model", detail.model ?? "–"],
        [
          "Route",
          <span key="route" className="mono wrap-anywhere">
            {detail.route ?? "–"}
          </span>,
        ],
        ...providerRecord(detail, withCopy),
      ]}
    />
  );
}

function OrganizationLink({ detail: { organization_id, organization_name } }: { detail: RequestDetail }) {
  const { isServiceWide } = useAccess();
  if (!isServiceWide) return organization_name;
  return <Link href={`/organizations/${encodeURIComponent(organization_id)}`}>{organization_name}</Link>;
}

/** ID and cost that the provider reported, if any. */
function providerRecord(
  { provider_response_id: id, provider_cost: cost }: RequestDetail,
  withCopy: (text: string, label: string) => ReactNode,
): (readonly [string, ReactNode])[] {
  const facts: (readonly [string, ReactNode])[] = [];
  if (id !== null) facts.push(["Provider response ID", withCopy(id, "Copy provider response ID")]);
  if (cost !== null) facts.push(["Provider cost", `${cost} in the provider's own unit`]);
  return facts;
}

function Attempts({ detail: { attempts, status } }: { detail: RequestDetail }) {
  if (attempts.length === 0 && status !== "complete") return null;
  if (attempts.length === 0) return <p className="small faint">Answered by the first route.</p>;
  return (
    <section className="stack-small">
      <h3>Attempts</h3>
      <ol className="steps">
        {attempts.map(({ route, outcome, duration_ms, reported }, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the same route may be tried twice; the order never changes
          <li key={index}>
            <span className="mono wrap-anywhere">{route}</span>
            <span className="soft">{outcome.replaceAll("_", " ")}</span>
            <span className="figures faint">{formatDuration(duration_ms)}</span>
            {reported !== undefined && <span className="small">{reportLabel(reported)}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Describes a usage report that was not charged. */
function reportLabel({ input, cached_input, cache_write, output, reasoning }: RequestDetail["tokens"]): string {
  const prompt = formatCount(input + cached_input + cache_write);
  return `The provider reported ${prompt} input and ${formatCount(output + reasoning)} output tokens`;
}

function Timings({ detail }: { detail: RequestDetail }) {
  const { status, created_at, ended_at, first_token_ms, duration_ms } = detail;
  return (
    <section className="stack-small">
      <h3>Timing</h3>
      <Facts
        facts={[
          ["Started", formatMoment(created_at)],
          ["First token", first_token_ms === null ? "–" : `after ${formatDuration(first_token_ms)}`],
          ["Ended", ended_at === null ? (status === "running" ? "Not yet" : "–") : formatMoment(ended_at)],
          ["Duration", duration_ms === null ? "–" : formatDuration(duration_ms)],
        ]}
      />
      {first_token_ms !== null && duration_ms !== null && duration_ms > 0 && (
        <span className="timing" aria-hidden="true">
          <span style={{ width: `${Math.min(100, (first_token_ms / duration_ms) * 100)}%` }} />
        </span>
      )}
    </section>
  );
}
