import type { Role } from "../../src/api/admin/session.ts";

interface Address {
  path: string;
  /** The address of one of the things that the page lists: a pattern, of which `path` is the beginning. */
  one?: string;
  /** Who finds a page there. */
  roles: readonly Role[];
}

const everyone = ["operator", "member"] as const;

/** Every page of the console, in the order of the navigation: where it is, and for whom. Elsewhere there is nothing. */
export const PAGE_PATHS = [
  { path: "/", roles: everyone },
  { path: "/organizations", one: "/organizations/:id", roles: ["operator"] },
  { path: "/credits", roles: ["member"] },
  { path: "/tokens", roles: everyone },
  { path: "/requests", one: "/requests/:id", roles: everyone },
  // A model's id has slashes.
  { path: "/models", one: "/models/*", roles: everyone },
  { path: "/playground", roles: everyone },
  { path: "/changes", roles: ["operator"] },
] as const satisfies readonly Address[];
