import { useQuery } from "@tanstack/react-query";
import { Compass } from "lucide-react";
import { Component, type ReactNode, Suspense, useEffect, useState } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import type { Role } from "../../src/api/admin/roles.ts";
import { serviceFacts, session } from "./api/queries.ts";
import { useSteady } from "./api/steady.ts";
import type { Session } from "./api/types.ts";
import { SignIn } from "./pages/sign-in.tsx";
import { SignInCallback } from "./pages/sign-in-callback.tsx";
import { useShownSecret } from "./pages/tokens/secret.tsx";
import { destinations } from "./routes.ts";
import { SessionContext } from "./shell/session.ts";
import { SessionEnded } from "./shell/session-ended.tsx";
import { GuestShell, Shell } from "./shell/shell.tsx";
import { Page } from "./ui/page.tsx";
import { Empty, Failure, QueryFailure, Skeleton } from "./ui/states.tsx";

export function App() {
  const who = useSteady(useQuery(session));
  const [kept, setKept] = useState<SignedInSession | null>(null);
  const hasSecret = useShownSecret() !== null;
  const service = useQuery(serviceFacts);
  const [path] = useLocation();
  if (path === "/sign-in") return <SignInCallback />;
  if (who.data === undefined) {
    return who.isError ? (
      <main className="center">
        <QueryFailure query={who} />
      </main>
    ) : (
      <Starting />
    );
  }
  const current = isSignedIn(who.data) ? who.data : null;
  if (current !== null && kept !== null && identityOf(current) !== identityOf(kept)) return <Reload />;
  if (current !== null && current !== kept) setKept(current);
  const shown = current ?? kept;
  if (shown !== null) {
    return (
      <>
        <SignedIn session={shown} />
        {/* A secret that is shown once comes first: nothing may cover it. */}
        {current === null && !hasSecret && <SessionEnded />}
      </>
    );
  }
  const isOpen = path === "/docs" || (path === "/playground" && service.data?.guest_playground.open === true);
  if (isOpen) return <Guest session={who.data} path={path} />;
  return <SignIn service={service.data} />;
}

/** The same as the content of index.html, which it replaces until the session is known. */
function Starting() {
  return (
    <div className="center" role="status">
      <div className="starting">
        <span className="brand">Tollgate</span>
        <span className="soft">Loading …</span>
      </div>
    </div>
  );
}

type SignedInSession = Session & { role: Role };

const isSignedIn = (who: Session): who is SignedInSession => who.role !== null;
const identityOf = ({ role, organization, token, person }: Session) =>
  [role, organization?.id, token?.id, person?.issuer, person?.subject].join();

/** Loads the console again for another person: neither the data nor the input of the first one may stay in memory. */
function Reload() {
  useEffect(() => location.reload(), []);
  return null;
}

function SignedIn({ session: who }: { session: SignedInSession }) {
  const [path] = useLocation();
  const open = destinations.filter(({ roles }) => roles.includes(who.role));
  return (
    <SessionContext value={who}>
      <Shell destinations={open} session={who}>
        <Boundary key={path.split("/")[1]}>
          <Suspense fallback={<PagePlaceholder />}>
            <Switch>
              {open.map(({ route, page: Content }) => (
                <Route key={route} path={route}>
                  <Content />
                </Route>
              ))}
              <Route>
                <Page title="Page not found">
                  <Empty icon={Compass} title="This page does not exist">
                    <Link href="/">Go to the overview</Link>
                  </Empty>
                </Page>
              </Route>
            </Switch>
          </Suspense>
        </Boundary>
      </Shell>
    </SessionContext>
  );
}

/** A page for those who are not signed in: the playground, or the reference of the API. */
function Guest({ session: who, path }: { session: Session; path: string }) {
  const Content = destinations.find((one) => one.path === path)?.page;
  return (
    <SessionContext value={who}>
      <GuestShell>
        <Boundary>
          <Suspense fallback={<PagePlaceholder />}>{Content && <Content />}</Suspense>
        </Boundary>
      </GuestShell>
    </SessionContext>
  );
}

function PagePlaceholder() {
  return (
    <div className="page" role="status" aria-label="Loading">
      <header className="page-head">
        <Skeleton width="12rem" height="1.5rem" />
      </header>
      <Skeleton height="16rem" />
    </div>
  );
}

interface BoundaryProps {
  children: ReactNode;
}

/** Shows an error in place of a page that fails to load or to render, and keeps the rest of the console. */
export class Boundary extends Component<BoundaryProps, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <Page title="Page failed to load">
        <Failure error={error} onRetry={() => location.reload()} />
      </Page>
    );
  }
}
