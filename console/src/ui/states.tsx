import { type LucideIcon, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { ApiFailure } from "../api/client.ts";
import { Button } from "./button.tsx";

/** Empty state of a list or page: says why it is empty, and what to do. */
export function Empty({ icon: Icon, title, children }: { icon: LucideIcon; title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <Icon size={22} strokeWidth={1.6} aria-hidden="true" />
      <p className="empty-title">{title}</p>
      {children && <div className="soft">{children}</div>}
    </div>
  );
}

/** Empty state of a list whose filters match nothing. */
export function NoMatches({ icon, title, onClear }: { icon: LucideIcon; title: string; onClear: () => void }) {
  return (
    <Empty icon={icon} title={title}>
      <Button onClick={onClear}>Clear filters</Button>
    </Empty>
  );
}

/** Shows an error with its title, message, code and request ID. */
export function Failure({ error, onRetry, retrying }: { error: unknown; onRetry?: () => void; retrying?: boolean }) {
  const { title, text, note } = describe(error);
  return (
    <div className="notice notice-bad" role="alert">
      <TriangleAlert size={16} aria-hidden="true" />
      <div className="notice-text">
        <strong>{title}</strong>
        <p>{text}</p>
        {note && <p className="small mono">{note}</p>}
      </div>
      {onRetry && (
        <Button onClick={onRetry} busy={retrying}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Query whose error is shown. */
export interface FailingQuery {
  error: unknown;
  isError: boolean;
  isFetching: boolean;
  refetch: () => unknown;
}

/** Shows the error of a query with a button to repeat it, or nothing if the query has not failed. */
export function QueryFailure({ query }: { query: FailingQuery }) {
  return query.isError && <Failure error={query.error} onRetry={() => query.refetch()} retrying={query.isFetching} />;
}

/** Titles of errors by code; see docs/errors.md. */
const TITLES: Record<string, string> = {
  invalid_token: "Invalid token",
  expired_token: "Expired token",
  missing_token: "Not signed in",
  sign_in_failed: "Sign-in failed",
  no_role: "No access",
  account_blocked: "Account blocked",
  issuer_unavailable: "Identity provider unavailable",
  window_blocked: "Window blocked",
  insufficient_scope: "Missing scope",
  insufficient_role: "Not permitted",
  insufficient_credits: "Insufficient credits",
  budget_exhausted: "Budget exhausted",
  rate_limit_exceeded: "Too many requests",
  not_found: "Not found",
  store_unavailable: "Database unavailable",
  payment_provider_unavailable: "Payment provider unavailable",
  upstream_unavailable: "Provider unavailable",
  upstream_timeout: "Provider timeout",
  upstream_rejected: "Rejected by the provider",
  overloaded: "Provider overloaded",
  content_filter: "Blocked by the content filter",
  organization_paused: "Organization paused",
  voucher_ended: "Voucher not valid",
};

/** Returns the title of an error code; a code without one is written in words. */
export function titleOfCode(code: string): string {
  const words = code.replaceAll("_", " ");
  return TITLES[code] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** Returns the title of an error whose code has none. */
function titleOf(status: number): string {
  if (status === 502 || status === 504) return "Provider error";
  if (status >= 500) return "Service error";
  return status === 409 ? "Conflict" : "Invalid request";
}

function describe(error: unknown): { title: string; text: string; note?: string } {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return { title: "Request timed out", text: "The service did not respond in time. Try again." };
  }
  // fetch and import throw a TypeError without a connection.
  if (error instanceof TypeError && /fetch|import|load|network/i.test(error.message)) {
    return {
      title: "The service could not be reached",
      text: "Check your network connection. The service may be restarting.",
    };
  }
  if (!(error instanceof ApiFailure)) {
    return {
      title: "Console error",
      text: "Reload the page. If the error persists, report it.",
      note: String(error),
    };
  }
  const note = [error.code, error.requestId].filter(Boolean).join(" · ");
  return { title: TITLES[error.code ?? ""] ?? titleOf(error.status), text: error.message, note };
}

export function Note({ children, tone = "plain" }: { children: ReactNode; tone?: "plain" | "warn" | "bad" | "good" }) {
  return <div className={`notice notice-${tone}`}>{children}</div>;
}

/** Placeholder of the given size for content that is loading. */
export function Skeleton({ width = "100%", height = "1em" }: { width?: string; height?: string }) {
  return <span className="skeleton" style={{ width, height }} aria-hidden="true" />;
}

export function SkeletonRows({ rows, heads }: { rows: number; heads: readonly string[] }) {
  return Array.from({ length: rows }, (_, row) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: placeholder rows have no identity
    <tr key={row} className="skeleton-row">
      {heads.map((head, column) => (
        <td key={head} data-label={head}>
          <Skeleton width={column === 0 ? "70%" : "45%"} />
        </td>
      ))}
    </tr>
  ));
}

export function Badge({
  tone = "plain",
  children,
}: {
  tone?: "plain" | "good" | "warn" | "bad" | "accent";
  children: ReactNode;
}) {
  return <span className={`badge badge-${tone}`}>{children}</span>;
}
