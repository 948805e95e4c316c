import { useQuery } from "@tanstack/react-query";
import { Pencil } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { organization as organizationQuery } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { Organization, TokenBounds } from "../../api/types.ts";
import { countOf, formatAmount } from "../../format/numbers.ts";
import { useAccess, useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { Card } from "../../ui/page.tsx";
import { QueryFailure, Skeleton } from "../../ui/states.tsx";
import { ModelChoice } from "../form-fields.tsx";
import { readOptionalCredits } from "../read-form.ts";

/** Returns the bounds of the tokens that a person creates themselves: null for an operator, undefined until they are read. */
export function useTokenBounds(): TokenBounds | null | undefined {
  const { may } = useAccess();
  const { organization } = useSession();
  const isBound = may("tokens:write") && !may("tokens:unbounded");
  const query = useQuery({ ...organizationQuery(organization?.id ?? ""), enabled: isBound });
  return isBound ? query.data?.token_bounds : null;
}

/** Returns whether a person can create tokens now. */
export function useMayCreate(): boolean {
  const { may } = useAccess();
  const bounds = useTokenBounds();
  return may("tokens:write") && bounds !== undefined && bounds?.max_count !== 0;
}

/** Describes what tokens a person can create. */
export function boundsLabel({ max_count, models, max_cap, max_days }: TokenBounds): string {
  if (max_count === 0) return "Only operators create tokens for this organization.";
  const cap = max_cap === null ? "" : `, spends at most ${formatAmount(max_cap)} credits`;
  const expiry = max_days === null ? "need not expire" : `expires within ${countOf(max_days, "day")}`;
  return `Each developer and owner can create ${countOf(max_count, "token")}. A token calls ${models?.join(", ") ?? "any model"}${cap}, and ${expiry}.`;
}

/** Shows the bounds of the tokens that the people of an organization create, and lets an owner or an operator change them. */
export function BoundsCard({ organizationId }: { organizationId: string }) {
  const { may } = useAccess();
  const [isOpen, setOpen] = useState(false);
  const query = useSteady(useQuery(organizationQuery(organizationId)));
  return (
    <Card
      title="Tokens of developers"
      actions={
        may("token-bounds:write") && (
          <Button icon={Pencil} disabled={query.data === undefined} onClick={() => setOpen(true)}>
            Edit bounds
          </Button>
        )
      }
    >
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="1.5rem" />}
      {query.data && <p>{boundsLabel(query.data.token_bounds)}</p>}
      {isOpen && query.data && <EditBounds organization={query.data} onClose={() => setOpen(false)} />}
    </Card>
  );
}

function EditBounds({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  // The state when the dialog opened: another person may change it in the meantime.
  const [before] = useState(organization.token_bounds);
  const [count, setCount] = useState(String(before.max_count));
  const [models, setModels] = useState<ReadonlySet<string> | null>(before.models && new Set(before.models));
  const [cap, setCap] = useState(before.max_cap === null ? "" : String(before.max_cap));
  const [days, setDays] = useState(before.max_days === null ? "" : String(before.max_days));
  const [isSubmitted, setSubmitted] = useState(false);
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/token-bounds`;
  const change = useAction(
    (bounds: TokenBounds) => send<Organization>("PATCH", path, bounds),
    ["organizations"],
    onClose,
  );
  const readCap = readOptionalCredits(cap);
  const isCount = /^\d{1,4}$/.test(count.trim()) && Number(count) <= 1_000;
  const areDays = days.trim() === "" || (/^[1-9]\d{0,3}$/.test(days.trim()) && Number(days) <= 3_650);
  const isNone = models?.size === 0;
  const submit = () => {
    setSubmitted(true);
    if ("error" in readCap || !isCount || !areDays || isNone) return;
    const max_days = days.trim() === "" ? null : Number(days);
    change.mutate({ max_count: Number(count), models: models && [...models], max_cap: readCap.value, max_days });
  };
  return (
    <DialogForm title="Tokens of developers" action="Save" attempt={change} onSubmit={submit} onClose={onClose}>
      <p>
        New, changed and rotated tokens have to be within these bounds. The present ones keep their terms until they
        expire or are revoked.
      </p>
      <TextField
        label="Tokens per person"
        hint="0: only operators create tokens."
        inputMode="numeric"
        value={count}
        error={isSubmitted && !isCount ? "Enter a whole number from 0 to 1000." : null}
        onValue={setCount}
      />
      <ModelChoice
        models={models}
        offered={null}
        error={isSubmitted && isNone ? "Select at least one model, or all models." : undefined}
        onModels={setModels}
      />
      <TextField
        label="Highest spending cap"
        hint="Credits that one token can spend in total. Leave blank for no bound."
        inputMode="decimal"
        value={cap}
        error={isSubmitted && "error" in readCap ? readCap.error : null}
        onValue={setCap}
      />
      <TextField
        label="Longest life in days"
        hint="Leave blank for no bound."
        inputMode="numeric"
        value={days}
        error={isSubmitted && !areDays ? "Enter a whole number from 1 to 3650, or leave blank." : null}
        onValue={setDays}
      />
    </DialogForm>
  );
}
