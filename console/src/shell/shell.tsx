import { useQuery } from "@tanstack/react-query";
import { LogIn, LogOut, Menu, Search } from "lucide-react";
import { type ComponentType, type ReactNode, useEffect, useEffectEvent, useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "../api/client.ts";
import { serviceFacts } from "../api/queries.ts";
import type { Session } from "../api/types.ts";
import { BASE_PATH } from "../base-path.ts";
import { Button, IconButton } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Brand } from "./brand.tsx";
import { CommandPalette } from "./command-palette.tsx";
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
  const [path] = useLocation();
  useShortcut(() => setSearching(true));
  const search = () => setSearching(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: closes the menu after navigation
  useEffect(() => setMenuOpen(false), [path]);
  return (
    <div className="shell">
      <SkipLink />
      <Sidebar destinations={destinations} session={session} onSearch={search} />
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
      {isSearching && <CommandPalette pages={destinations} onClose={() => setSearching(false)} />}
      <main id="main" className="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

/** Calls a function on Ctrl+K or Command+K, unless a dialog is open. */
function useShortcut(onPressed: () => void): void {
  const pressed = useEffectEvent((event: KeyboardEvent) => {
    const isShortcut = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k";
    if (!isShortcut) return;
    // The browser's own shortcut would leave the page.
    event.preventDefault();
    if (document.querySelector("dialog[open]") === null) onPressed();
  });
  useEffect(() => {
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
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
}

function Sidebar({ destinations, session, isInMenu = false, onSearch }: SidebarProps) {
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
