import { useQuery } from "@tanstack/react-query";
import { Keyboard, LogIn, LogOut, Menu, Search } from "lucide-react";
import { type ComponentType, type ReactNode, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "../api/client.ts";
import { serviceFacts } from "../api/queries.ts";
import type { Session } from "../api/types.ts";
import { BASE_PATH } from "../base-path.ts";
import { Button, IconButton } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Brand } from "./brand.tsx";
import { CommandPalette } from "./command-palette.tsx";
import { ShortcutsDialog, useShortcuts } from "./shortcuts.tsx";
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
  const [isSearching, setSearching] = useState(false);
  const [isHelping, setHelping] = useState(false);
  const [path] = useLocation();
  const search = () => setSearching(true);
  const help = () => setHelping(true);
  useShortcuts({ onSearch: search, onHelp: help });
  // biome-ignore lint/correctness/useExhaustiveDependencies: closes the menu after navigation
  useEffect(() => setMenuOpen(false), [path]);
  return (
    <div className="shell">
      <SkipLink />
      <Sidebar destinations={destinations} session={session} onSearch={search} onHelp={help} />
      <header className="topbar">
        <Brand />
        <div className="row row-tight">
          <IconButton icon={Search} label="Go to" onClick={search} />
          <IconButton icon={Menu} label="Menu" onClick={() => setMenuOpen(true)} />
        </div>
      </header>
      {isMenuOpen && (
        <Dialog title="Menu" side className="drawer" onClose={() => setMenuOpen(false)}>
          <Sidebar destinations={destinations} session={session} isInMenu />
        </Dialog>
      )}
      {isHelping && <ShortcutsDialog onClose={() => setHelping(false)} />}
      {isSearching && <CommandPalette pages={destinations} onClose={() => setSearching(false)} />}
      <main id="main" className="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** Frame of a page for guests: a link to sign in, and no navigation. */
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
  onSearch?: () => void;
  onHelp?: () => void;
}

function Sidebar({ destinations, session, isInMenu = false, onSearch, onHelp }: SidebarProps) {
  const [path] = useLocation();
  const isAt = (to: string) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`));
  const Frame = isInMenu ? "div" : "header";
  return (
    <Frame className="sidebar">
      {!isInMenu && <Brand />}
      {onSearch && (
        <Button icon={Search} aria-keyshortcuts="Control+K" onClick={onSearch}>
          Go to … <kbd className="faint">Ctrl K</kbd>
        </Button>
      )}
      <nav className="nav" aria-label="Pages">
        {destinations.map(({ path: to, label, icon: Icon }) => (
          <Link key={to} href={to} aria-current={isAt(to) ? "page" : undefined}>
            <Icon size={16} strokeWidth={1.8} aria-hidden="true" />
            {label}
          </Link>
        ))}
      </nav>
      <SidebarFoot session={session} onHelp={onHelp} />
    </Frame>
  );
}

function SidebarFoot({ session, onHelp }: Pick<SidebarProps, "session" | "onHelp">) {
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
        {onHelp && <IconButton icon={Keyboard} label="Keyboard shortcuts" aria-keyshortcuts="?" onClick={onHelp} />}
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
