import { HandCoins, HandHeart, Undo2 } from "lucide-react";
import { useState } from "react";
import type { Grant, Organization } from "../../api/types.ts";
import { formatCredits, formatExactCredits } from "../../format/numbers.ts";
import { Button } from "../../ui/button.tsx";
import { Card } from "../../ui/page.tsx";
import { Allowances } from "./allowances.tsx";
import { CreditForm } from "./credit-form.tsx";
import { GrantForm } from "./grant-form.tsx";
import { Grants } from "./grants.tsx";
import { RevokeForm } from "./revoke-form.tsx";
import { Statement } from "./statement.tsx";

interface CreditsSectionProps {
  organization: Organization;
  /** Whether the reader grants and takes back, or only looks. */
  mayChange: boolean;
}

type Doing = { what: "grant" | "credit" } | { what: "revoke"; grant: Grant | null } | null;

/** An organization's credits: what is left, where they come from, and where they went. */
export function CreditsSection({ organization, mayChange }: CreditsSectionProps) {
  const [doing, setDoing] = useState<Doing>(null);
  const { id, credits } = organization;
  const close = () => setDoing(null);
  return (
    <>
      <Balance organization={organization} />
      <Card
        title="Grants"
        about="Drawn in the order of their priority, what lapses first before the rest"
        flush
        actions={mayChange && <Actions onDoing={setDoing} />}
      >
        <Grants organizationId={id} onRevoke={mayChange ? (grant) => setDoing({ what: "revoke", grant }) : undefined} />
      </Card>
      <Allowances organizationId={id} mayChange={mayChange} />
      <Statement organizationId={id} />
      {doing?.what === "grant" && <GrantForm organizationId={id} onClose={close} />}
      {doing?.what === "credit" && <CreditForm organizationId={id} onClose={close} />}
      {doing?.what === "revoke" && (
        <RevokeForm organizationId={id} grant={doing.grant} available={credits.available} onClose={close} />
      )}
    </>
  );
}

function Actions({ onDoing }: { onDoing: (doing: Doing) => void }) {
  return (
    <>
      <Button icon={Undo2} onClick={() => onDoing({ what: "revoke", grant: null })}>
        Take back
      </Button>
      <Button icon={HandHeart} onClick={() => onDoing({ what: "credit" })}>
        Give back
      </Button>
      <Button look="main" icon={HandCoins} onClick={() => onDoing({ what: "grant" })}>
        Grant credits
      </Button>
    </>
  );
}

function Balance({ organization: { credits } }: { organization: Organization }) {
  const tiles: [string, number, string][] = [
    ["Credits left", credits.available, "To be spent now"],
    ["Held", credits.held, "By requests that are running"],
    ["Used", credits.used, "Charged so far"],
    ["Granted", credits.total, "In all, without what has lapsed"],
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
