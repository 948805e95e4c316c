import type { Role } from "../../src/api/admin/roles.ts";

interface Address {
  path: string;
  /** Route pattern of a detail view, which begins with `path`. */
  one?: string;
  /** Roles that can open the page. */
  roles: readonly Role[];
}

const service = ["operator", "auditor"] as const;
const readers = [...service, "owner", "member"] as const;
const everyone = [...readers, "developer", "billing"] as const;

/** Paths and roles of all pages, in the order of the navigation. */
export const PAGE_PATHS = [
  { path: "/", roles: everyone },
  { path: "/organizations", one: "/organizations/:id", roles: service },
  { path: "/credits", roles: ["owner", "billing", "member"] },
  { path: "/vouchers", roles: service },
  { path: "/statements", one: "/statements/:id", roles: [...readers, "billing"] },
  { path: "/tokens", one: "/tokens/:id", roles: [...readers, "developer"] },
  { path: "/requests", one: "/requests/:id", roles: readers },
  // Model IDs contain slashes.
  { path: "/models", one: "/models/*", roles: everyone },
  { path: "/playground", roles: ["operator", "owner", "developer", "member"] },
  { path: "/warnings", one: "/warnings/:id", roles: [...service, "owner"] },
  { path: "/audit", roles: service },
  { path: "/docs", roles: everyone },
] as const satisfies readonly Address[];
