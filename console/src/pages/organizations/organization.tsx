import { useQuery } from "@tanstack/react-query";
import { CirclePause, CirclePlay, CircleX, Eraser, Pencil } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { organization as organizationQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Organization } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Card, Facts, Page } from "../../ui/page.tsx";
import { Badge, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { useFilters } from "../filters.tsx";
import { limitsLabel } from "../limits-label.ts";
import { OrganizationUsage } from "../overview/usage.tsx";
import { BoundsCard } from "../tokens/bounds.tsx";
import { OrganizationTokens } from "../tokens/token-table.tsx";
import { Troubles } from "../trouble/banners.tsx";
import { Receivers } from "../warnings/receivers.tsx";
import { Budgets } from "./budgets.tsx";
import { CloseOrganization, EraseOrganization } from "./close-organization.tsx";
import { ConversationsSection } from "./conversations-section.tsx";
import { Balance, CreditsSection } from "./credits.tsx";
import { EditOrganization, PauseOrganization } from "./organization-forms.tsx";
import { Statement } from "./statement.tsx";
import { TermsCard } from "./terms.tsx";

export function OrganizationPage({ id }: { id: string }) {
  const query = useSteady(useQuery(organizationQuery(id)));
  if (query.data !== undefined) return <Loaded organization={query.data} />;
  return (
    <Page title="Organization">
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="24rem" />}
    </Page>
  );
}

type OpenDialog = "edit" | "pause" | "close" | "erase" | null;

const TABS = [
  ["credits", "Credits"],
  ["usage", "Usage"],
  ["tokens", "Tokens"],
  ["budgets", "Budgets"],
  ["statement", "Statement"],
  ["warnings", "Warnings"],
  ["settings", "Settings"],
] as const;
type Tab = (typeof TABS)[number][0];
const FIRST_TAB = "credits";

function Loaded({ organization }: { organization: Organization }) {
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const [{ tab: named }] = useFilters(["tab"]);
  const tab = TABS.find(([name]) => name === named)?.[0] ?? FIRST_TAB;
  const isPaused = organization.status === "paused";
  const isClosed = organization.status === "closed";
  const isErased = organization.erased_at !== null;
  return (
    <Page
      title={organization.name}
      about={
        <span className="row row-tight">
          <span className="mono wrap-anywhere">{organization.id}</span>
          <CopyIcon text={organization.id} label="Copy ID" />
          {isPaused && <Badge tone="warn">Paused</Badge>}
          {isClosed && <Badge>{isErased ? "Erased" : "Closed"}</Badge>}
        </span>
      }
      actions={
        may("organizations:write") && (
          <>
            {!isErased && (
              <Button icon={Pencil} onClick={() => setOpenDialog("edit")}>
                Edit
              </Button>
            )}
            {isClosed && (
              <Button icon={Eraser} onClick={() => setOpenDialog("erase")}>
                {isErased ? "Erase again" : "Erase"}
              </Button>
            )}
            {!isClosed && (
              <Button icon={isPaused ? CirclePlay : CirclePause} onClick={() => setOpenDialog("pause")}>
                {isPaused ? "Resume" : "Pause"}
              </Button>
            )}
            {organization.kind === "standard" && !isClosed && (
              <Button icon={CircleX} onClick={() => setOpenDialog("close")}>
                Close
              </Button>
            )}
          </>
        )
      }
    >
      <Troubles organizationId={organization.id}>
        <Balance organization={organization} />
        <nav className="tabs" aria-label={`Sections of ${organization.name}`}>
          {TABS.map(([name, label]) => (
            <Link
              key={name}
              href={withQuery(`/organizations/${encodeURIComponent(organization.id)}`, {
                tab: name === FIRST_TAB ? null : name,
              })}
              aria-current={name === tab ? "page" : undefined}
            >
              {label}
            </Link>
          ))}
        </nav>
        <TabContent tab={tab} organization={organization} />
      </Troubles>
      {openDialog === "edit" && <EditOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
      {openDialog === "close" && <CloseOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
      {openDialog === "erase" && <EraseOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
      {openDialog === "pause" && <PauseOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
    </Page>
  );
}

function TabContent({ tab, organization }: { tab: Tab; organization: Organization }) {
  const { may } = useAccess();
  const { id, kind } = organization;
  switch (tab) {
    case "usage":
      return <OrganizationUsage organizationId={id} />;
    case "tokens":
      return (
        <>
          <OrganizationTokens organizationId={id} />
          {kind === "standard" && <BoundsCard organizationId={id} />}
        </>
      );
    case "budgets":
      return <Budgets organizationId={id} />;
    case "statement":
      return <Statement organization={organization} />;
    case "warnings":
      return <Receivers organizationId={id} />;
    case "settings":
      return <Settings organization={organization} />;
    default:
      return <CreditsSection organization={organization} mayChange={kind === "standard" && may("credits:write")} />;
  }
}

function Settings({ organization }: { organization: Organization }) {
  return (
    <>
      {organization.kind === "standard" && <TermsCard organization={organization} />}
      <ConversationsSection organization={organization} />
      <Card title="About">
        <Facts
          facts={[
            ["Limits", limitsLabel(organization.limits)],
            ["Credit warnings", organization.credit_warnings?.map(formatAmount).join(", ") ?? "None"],
            ["Created", formatDate(organization.created_at)],
          ]}
        />
      </Card>
    </>
  );
}
