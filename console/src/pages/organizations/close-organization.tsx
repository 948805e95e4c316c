import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Organization, OrganizationClosing } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField } from "../../ui/field.tsx";

const RESTS = [
  ["refunded", "It is paid back"],
  ["lapsed", "It lapses"],
] as const;

export function CloseOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const [rest, setRest] = useState<OrganizationClosing["rest"]>("refunded");
  const { id, name, credits } = organization;
  const close = useAction(
    (closing: OrganizationClosing, key) =>
      send<Organization>("POST", `/admin/v1/organizations/${encodeURIComponent(id)}/close`, closing, key),
    ["organizations", "overview", "tokens"],
    onClose,
  );
  return (
    <DialogForm
      title={`Close ${name}?`}
      action="Close for good"
      danger
      attempt={close}
      onSubmit={() => close.mutate({ rest })}
      onClose={onClose}
    >
      <p>
        Its tokens and monthly allowances end, and it can never be resumed. Statements, requests and the audit log
        remain.
      </p>
      <SelectField
        label="Remaining credits"
        hint={`${formatAmount(credits.available)} credits are available and are revoked. Paying them back is up to you.`}
        value={rest}
        options={RESTS}
        onValue={setRest}
      />
    </DialogForm>
  );
}

export function EraseOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  const { id, name } = organization;
  const erase = useAction(
    (_: null, key) => send<Organization>("POST", `/admin/v1/organizations/${encodeURIComponent(id)}/erase`, {}, key),
    ["organizations", "overview", "tokens", "statements"],
    onClose,
  );
  return (
    <DialogForm
      title={`Erase ${name}?`}
      action="Erase for good"
      danger
      attempt={erase}
      onSubmit={() => erase.mutate(null)}
      onClose={onClose}
    >
      <p>
        Its names, notes, contacts, conversations and the details of its audit log are removed, also from its monthly
        statements. Amounts and the numbers of statements remain. Export the statements first if your bookkeeping needs
        the names.
      </p>
    </DialogForm>
  );
}
