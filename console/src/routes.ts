import {
  BookText,
  Boxes,
  Building2,
  History,
  KeyRound,
  LayoutDashboard,
  ListTree,
  type LucideIcon,
  MessagesSquare,
} from "lucide-react";
import { type ComponentType, lazy } from "react";
import type { Role } from "../../src/contract/admin/session.ts";

interface Destination {
  path: string;
  label: string;
  icon: LucideIcon;
  roles: readonly Role[];
  page: ComponentType;
}

const everyone = ["operator", "member"] as const;

/** The pages, in the order of the navigation. Each is loaded when it is first opened. */
export const destinations: readonly Destination[] = [
  {
    path: "/",
    label: "Overview",
    icon: LayoutDashboard,
    roles: everyone,
    page: lazy(() => import("./pages/overview/overview.tsx")),
  },
  {
    path: "/organizations",
    label: "Organizations",
    icon: Building2,
    roles: ["operator"],
    page: lazy(() => import("./pages/organizations/organizations.tsx")),
  },
  {
    path: "/credits",
    label: "Credits",
    icon: BookText,
    roles: ["member"],
    page: lazy(() => import("./pages/organizations/own-credits.tsx")),
  },
  {
    path: "/tokens",
    label: "Tokens",
    icon: KeyRound,
    roles: everyone,
    page: lazy(() => import("./pages/tokens/tokens.tsx")),
  },
  {
    path: "/requests",
    label: "Requests",
    icon: ListTree,
    roles: everyone,
    page: lazy(() => import("./pages/requests/requests.tsx")),
  },
  {
    path: "/models",
    label: "Models",
    icon: Boxes,
    roles: everyone,
    page: lazy(() => import("./pages/models/models.tsx")),
  },
  {
    path: "/playground",
    label: "Playground",
    icon: MessagesSquare,
    roles: everyone,
    page: lazy(() => import("./pages/playground/playground.tsx")),
  },
  {
    path: "/changes",
    label: "Changes",
    icon: History,
    roles: ["operator"],
    page: lazy(() => import("./pages/changes/changes.tsx")),
  },
];
