import type { ReactNode } from "react";
import { Link } from "wouter";
import { useAccess } from "../../shell/session.ts";
import { requestsPath, type View } from "./view.ts";

/** Returns what makes the address of the requests behind a figure; undefined for a role that cannot read requests. */
export function useRequestsPath(): ((view: Partial<View>) => string) | undefined {
  return useAccess().may("requests:read") ? requestsPath : undefined;
}

/** Figure or name that leads to the requests behind it; plain for a role that cannot read requests. */
export function RequestsLink({ view, children }: { view: Partial<View>; children: ReactNode }) {
  const pathOf = useRequestsPath();
  if (pathOf === undefined) return <span className="wrap-anywhere">{children}</span>;
  return (
    <Link className="row-link wrap-anywhere" href={pathOf(view)}>
      {children}
    </Link>
  );
}
