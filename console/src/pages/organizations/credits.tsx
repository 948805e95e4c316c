import { useQuery } from "@tanstack/react-query";
import { HandCoins, HandHeart, Ticket, Undo2 } from "lucide-react";
import { useState } from "react";
import { organization as organizationQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Grant, Organization } from "../../api/types.ts";
import { formatAmount, formatCredits, formatExactCredits } from "../../format/numbers.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Note, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { Troubles } from "../trouble/banners.tsx";
import { Allowances } from "./allowances.tsx";
import { GrantForm, RedeemForm, RefundForm, RequestForm, RevokeForm } from "./booking-forms.tsx";
import { Budgets } from "./budgets.tsx";
import { Grants } from "./grants.tsx";
import { Payments } from "./payments.tsx";
import { Statement } from "./statement.tsx";
import { AutomaticTopUp } from "./top-up.tsx";

/** Credits page of an organization's people, who can ask for credits, and redeem vouchers if they may. */
export default function OwnCredits() {
  const { organization } = useSession();
  const query = useSteady(useQuery(organizationQuery(organization?.id ?? "")));
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<"request" | "redeem" | null>(null);
  const [note, setNote] = useState("");
  const close = () => setOpenDialog(null);
  const done = (text: string) => {
    setNote(text);
    close();
  };
  return (
    <Page
      title="Credits"
      about={organization?.name}
      actions={
        query.data && (
          <>
            {may("credits:buy") && (
              <Button icon={Ticket} onClick={() => setOpenDialog("redeem")}>
                Redeem voucher
              </Button>
            )}
            {may("credits:request") && (
              <Button icon={HandCoins} onClick={() => setOpenDialog("request")}>
                Request credits
              </Button>
            )}
          </>
        )
      }
    >
      {note !== "" && <Note>{note}</Note>}
      {openDialog === "request" && query.data && (
        <RequestForm
          organization={query.data}
          onClose={close}
          onSent={() => done("Your request for credits was sent.")}
        />
      )}
      {openDialog === "redeem" && query.data && (
        <RedeemForm
          organization={query.data}
          onClose={close}
          onRedeemed={(credits) => done(`The voucher is redeemed: ${formatAmount(credits)} credits were granted.`)}
        />
      )}
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="24rem" />}
      {query.data && (
        <Troubles organizationId={query.data.id}>
          <Balance organization={query.data} />
          <CreditsSection organization={query.data} mayChange={false} />
          <Budgets organizationId={query.data.id} />
          <Statement organization={query.data} />
        </Troubles>
      )}
    </Page>
  );
}

interface CreditsSectionProps {
  organization: Organization;
  /** True for operators; members have read-only access. */
  mayChange: boolean;
}

type OpenDialog = { what: "grant" | "credit" } | { what: "revoke"; grant: Grant | null } | null;

/** Grants and monthly allowances of an organization. */
export function CreditsSection({ organization, mayChange }: CreditsSectionProps) {
  const [openDialog, setOpenDialog] = useState<OpenDialog>(null);
  const { id } = organization;
  const close = () => setOpenDialog(null);
  return (
    <>
      <Card
        title="Grants"
        about="Spent by priority, then earliest expiry"
        flush
        actions={mayChange && <Actions onOpen={setOpenDialog} />}
      >
        <Grants
          organizationId={id}
          onRevoke={mayChange ? (grant) => setOpenDialog({ what: "revoke", grant }) : undefined}
        />
      </Card>
      <Payments organization={organization} />
      <AutomaticTopUp organization={organization} />
      <Allowances organization={organization} mayChange={mayChange} />
      {openDialog?.what === "grant" && <GrantForm organization={organization} onClose={close} />}
      {openDialog?.what === "credit" && <RefundForm organization={organization} onClose={close} />}
      {openDialog?.what === "revoke" && (
        <RevokeForm organization={organization} grant={openDialog.grant} onClose={close} />
      )}
    </>
  );
}

function Actions({ onOpen }: { onOpen: (openDialog: OpenDialog) => void }) {
  return (
    <>
      <Button icon={Undo2} onClick={() => onOpen({ what: "revoke", grant: null })}>
        Revoke
      </Button>
      <Button icon={HandHeart} onClick={() => onOpen({ what: "credit" })}>
        Refund
      </Button>
      <Button look="main" icon={HandCoins} onClick={() => onOpen({ what: "grant" })}>
        Grant credits
      </Button>
    </>
  );
}

export function Balance({ organization: { credits } }: { organization: Organization }) {
  const tiles: [string, number, string][] = [
    ["Available", credits.available, "Ready to use"],
    ["Held", credits.held, "Reserved for requests in progress"],
    ["Spent", credits.used, "Total charged"],
    ["Granted", credits.total, "Total granted, less expired and revoked"],
  ];
  return (
    <dl className="tiles">
      {tiles.map(([name, value, note]) => (
        <div key={name} className="tile" title={`${formatExactCredits(value)} credits`}>
          <dt>{name}</dt>
          <dd className="figure">{formatCredits(value)}</dd>
          <dd className="small faint">{note}</dd>
        </div>
      ))}
    </dl>
  );
}
