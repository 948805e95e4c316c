import { useQuery } from "@tanstack/react-query";
import { CirclePause, CirclePlay, Settings2 } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { organization as organizationQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Organization } from "../../api/types.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Card, Facts, Page } from "../../ui/page.tsx";
import { Badge, Failure, Note, Skeleton } from "../../ui/states.tsx";
import { limitsLabel } from "../form-fields.tsx";
import { ConversationsSection } from "./conversations-section.tsx";
import { CreditsSection } from "./credits.tsx";
import { EditOrganization, PauseOrganization } from "./organization-forms.tsx";

export function OrganizationPage({ id }: { id: string }) {
  const query = useSteady(useQuery(organizationQuery(id)));
  if (query.data === undefined) {
    return (
      <Page title="Organization">
        {query.isError ? (
          <Failure error={query.error} onRetry={() => query.refetch()} retrying={query.isFetching} />
        ) : (
          <Skeleton height="24rem" />
        )}
      </Page>
    );
  }
  return <Loaded organization={query.data} />;
}

type OpenDialog = "edit" | "pause" | null;

function Loaded({ organization }: { organization: Organization }) {
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const isPaused = organization.status === "paused";
  const query = `?organization_id=${encodeURIComponent(organization.id)}`;
  return (
    <Page
      title={organization.name}
      about={
        <span className="row row-tight">
          <span className="mono wrap-anywhere">{organization.id}</span>
          <CopyIcon text={organization.id} label="Copy ID" />
          {isPaused && <Badge tone="warn">Paused</Badge>}
        </span>
      }
      actions={
        may("organizations:write") && (
          <>
            <Button icon={Settings2} onClick={() => setOpenDialog("edit")}>
              Settings
            </Button>
            <Button icon={isPaused ? CirclePlay : CirclePause} onClick={() => setOpenDialog("pause")}>
              {isPaused ? "Resume" : "Pause"}
            </Button>
          </>
        )
      }
    >
      {isPaused && (
        <Note tone="warn">
          Paused: new requests are refused with 403 organization_paused. Its credits are kept.
          {organization.pauses_allowances && " Its allowances are paused as well."}
        </Note>
      )}
      <CreditsSection
        organization={organization}
        mayChange={organization.kind === "standard" && may("credits:write")}
      />
      <ConversationsSection organization={organization} />
      <Card title="About">
        <Facts
          facts={[
            ["Limits", limitsLabel(organization.limits)],
            ["Created", formatDate(organization.created_at)],
            [
              "Related pages",
              <span key="links" className="row">
                <Link href={`/${query}`}>Overview</Link>
                <Link href={`/tokens${query}`}>Tokens</Link>
                <Link href={`/requests${query}`}>Requests</Link>
              </span>,
            ],
          ]}
        />
      </Card>
      {openDialog === "edit" && <EditOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
      {openDialog === "pause" && <PauseOrganization organization={organization} onClose={() => setOpenDialog(null)} />}
    </Page>
  );
}
