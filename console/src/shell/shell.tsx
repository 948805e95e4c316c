import { useQuery } from "@tanstack/react-query";
import { LogIn, LogOut, Menu } from "lucide-react";
import { type ComponentType, type ReactNode, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "../api/client.ts";
import { serviceFacts } from "../api/queries.ts";
import type { Session } from "../api/types.ts";
import { BASE_PATH } from "../base-path.ts";
import { IconButton } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Brand } from "./brand.tsx";
import { ThemeButton } from "./theme.tsx";

interface Destination {
  path: string;
  label: string;
  icon: ComponentType<{ size?: number; strokeWidth?: number; "aria-hidden"?: "true" }>;
}

interface ShellProps {
  destinations: readonly Destination[];
  session: Session;
  children: ReactNode;
}

/** Frame of every page: navigation, account and theme. */
export function Shell({ destinations, session, children }: ShellProps) {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [path] = useLocation();
  // biome-ignore lint/correctness/useExhaustiveDependencies: closes the menu after navigation
  useEffect(() => setMenuOpen(false), [path]);
  return (
    <div className="shell">
      <SkipLink />
      <Sidebar destinations={destinations} session={session} />
      <header className="topbar">
        <Brand />
        <IconButton icon={Menu} label="Menu" onClick={() => setMenuOpen(true)} />
      </header>
      {isMenuOpen && (
        <Dialog title="Menu" side className="drawer" onClose={() => setMenuOpen(false)}>
          <Sidebar destinations={destinations} session={session} isInMenu />
        </Dialog>
      )}
      <main id="main" className="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** Frame of the playground for guests: a link to sign in, and no navigation. */
export function GuestShell({ children }: { children: ReactNode }) {
  return (
    <div className="guest">
      <SkipLink />
      <header className="topbar topbar-always">
        <Brand />
        <div className="row">
          <ThemeButton />
          <Link className="button button-plain" href="/">
            <LogIn size={15} aria-hidden="true" />
            <span>Sign in</span>
          </Link>
        </div>
      </header>
      <main id="main" className="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function SkipLink() {
  return (
    <a className="skip" href="#main">
      Skip to content
    </a>
  );
}

interface SidebarProps {
  destinations: readonly Destination[];
  session: Session;
  isInMenu?: boolean;
}

function Sidebar({ destinations, session, isInMenu = false }: SidebarProps) {
  const [path] = useLocation();
  const isAt = (to: string) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`));
  const Frame = isInMenu ? "div" : "header";
  return (
    <Frame className="sidebar">
      {!isInMenu && <Brand />}
      <nav className="nav" aria-label="Pages">
        {destinations.map(({ path: to, label, icon: Icon }) => (
          <Link key={to} href={to} aria-current={isAt(to) ? "page" : undefined}>
            <Icon size={16} strokeWidth={1.8} aria-hidden="true" />
            {label}
          </Link>
        ))}
      </nav>
      <SidebarFoot session={session} />
    </Frame>
  );
}

function SidebarFoot({ session }: { session: Session }) {
  const service = useQuery(serviceFacts);
  return (
    <div className="sidebar-foot">
      <div className="who">
        <span className="truncate">
          {session.organization?.name ?? (session.role === "auditor" ? "Auditor" : "Operator")}
        </span>
        <span className="small faint truncate">
          {session.person?.name ?? session.token?.name ?? `Tollgate ${service.data?.version ?? ""}`}
        </span>
      </div>
      <div className="row">
        <ThemeButton />
        <IconButton icon={LogOut} label="Sign out" onClick={() => signOut(session)} />
      </div>
    </div>
  );
}

/** Loads the console again: data of this user must not be visible to the next one. Their provider is left, too. */
async function signOut({ sign_out_url }: Session): Promise<void> {
  await send("DELETE", "/admin/v1/session");
  location.assign(sign_out_url ?? `${BASE_PATH}/`);
}
