import {
  BellRing,
  BookOpen,
  BookText,
  Boxes,
  Building2,
  FileText,
  History,
  KeyRound,
  LayoutDashboard,
  ListTree,
  type LucideIcon,
  MessagesSquare,
  Ticket,
} from "lucide-react";
import { type ComponentType, lazy } from "react";
import type { Role } from "../../src/api/admin/roles.ts";
import { PAGE_PATHS } from "./page-paths.ts";

interface PageInfo {
  label: string;
  icon: LucideIcon;
  page: ComponentType;
}

/** Label, icon and component of each page. Components are loaded when first opened. */
const PAGES: Record<(typeof PAGE_PATHS)[number]["path"], PageInfo> = {
  "/": {
    label: "Overview",
    icon: LayoutDashboard,
    page: lazy(() => import("./pages/overview/overview.tsx")),
  },
  "/organizations": {
    label: "Organizations",
    icon: Building2,
    page: lazy(() => import("./pages/organizations/organizations.tsx")),
  },
  "/credits": {
    label: "Credits",
    icon: BookText,
    page: lazy(() => import("./pages/organizations/credits.tsx")),
  },
  "/vouchers": {
    label: "Vouchers",
    icon: Ticket,
    page: lazy(() => import("./pages/vouchers/vouchers.tsx")),
  },
  "/statements": {
    label: "Statements",
    icon: FileText,
    page: lazy(() => import("./pages/statements/statements.tsx")),
  },
  "/tokens": {
    label: "Tokens",
    icon: KeyRound,
    page: lazy(() => import("./pages/tokens/tokens.tsx")),
  },
  "/requests": {
    label: "Requests",
    icon: ListTree,
    page: lazy(() => import("./pages/requests/requests.tsx")),
  },
  "/models": {
    label: "Models",
    icon: Boxes,
    page: lazy(() => import("./pages/models/models.tsx")),
  },
  "/playground": {
    label: "Playground",
    icon: MessagesSquare,
    page: lazy(() => import("./pages/playground/playground.tsx")),
  },
  "/warnings": {
    label: "Warnings",
    icon: BellRing,
    page: lazy(() => import("./pages/warnings/warnings.tsx")),
  },
  "/audit": {
    label: "Audit log",
    icon: History,
    page: lazy(() => import("./pages/audit-log/audit-log.tsx")),
  },
  "/docs": {
    label: "API reference",
    icon: BookOpen,
    page: lazy(() => import("./pages/docs/docs.tsx")),
  },
};

interface Destination extends PageInfo {
  path: string;
  /** Route pattern that matches the page and its detail view. */
  route: string;
  roles: readonly Role[];
}

/** Pages in the order of the navigation. */
export const destinations: readonly Destination[] = PAGE_PATHS.map((address) => ({
  ...PAGES[address.path],
  path: address.path,
  route: "one" in address ? `${address.one}?` : address.path,
  roles: address.roles,
}));
