import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Booking, NewGrant, NewOrganization, NewToken, Organization, TokenWithSecret } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { readCredits } from "../read-form.ts";
import { showSecret } from "../tokens/secret.tsx";
import { CreditsField, Summary } from "./booking-forms.tsx";

interface Customer {
  name: string;
  credits: number;
  tokenName: string;
}

/** Form that creates an organization, grants it credits, unless they are 0, and creates its first token, which is then shown with its use. */
export function NewCustomer({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [amount, setAmount] = useState("");
  const [tokenName, setTokenName] = useState("First token");
  const [isSubmitted, setSubmitted] = useState(false);
  const [, go] = useLocation();
  const { create, organization } = useCreation(({ id }, token) => {
    showSecret({ title: "Customer created", token }, onClose);
    go(`/organizations/${encodeURIComponent(id)}`);
  });
  const credits = readCredits(amount, true);
  const isComplete = name.trim() !== "" && tokenName.trim() !== "" && "value" in credits;
  const submit = () => {
    setSubmitted(true);
    if (isComplete) create.mutate({ name: name.trim(), credits: credits.value, tokenName: tokenName.trim() });
  };
  return (
    <DialogForm title="New customer" action="Create customer" attempt={create} onSubmit={submit} onClose={onClose}>
      <TextField
        label="Name"
        hint="Name of the organization."
        maxLength={200}
        value={name}
        // It exists after a later step failed: a retry continues with it.
        disabled={organization !== null}
        error={isSubmitted && name.trim() === "" ? "Enter a name." : null}
        onValue={setName}
      />
      <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      <TextField
        label="Token name"
        hint="The secret is shown in the next step."
        maxLength={200}
        value={tokenName}
        error={isSubmitted && tokenName.trim() === "" ? "Enter a name." : null}
        onValue={setTokenName}
      />
      <Summary text={isComplete ? summaryOf(name.trim(), credits.value) : null} />
    </DialogForm>
  );
}

function summaryOf(name: string, credits: number): string {
  return `Creates ${name} with ${formatAmount(credits)} credits and one token.`;
}

/** Creates everything in three steps. A retry after a failure continues after the steps that succeeded. */
function useCreation(onDone: (organization: Organization, token: TokenWithSecret) => void) {
  const [organization, setOrganization] = useState<Organization | null>(null);
  const granted = useRef(false);
  const post = <Body extends object, Answer>(path: string, body: Body, key: string) =>
    send<Answer>("POST", `/admin/v1${path}`, body, key);
  const create = useAction(
    async ({ name, credits, tokenName }: Customer, key) => {
      const owner = organization ?? (await post<NewOrganization, Organization>("/organizations", { name }, `${key}-1`));
      setOrganization(owner);
      const grants = `/organizations/${encodeURIComponent(owner.id)}/grants`;
      if (credits > 0 && !granted.current) {
        await post<NewGrant, Booking>(grants, { amount: credits }, `${key}-2`);
        granted.current = true;
      }
      const token = { organization_id: owner.id, name: tokenName };
      return { owner, token: await post<NewToken, TokenWithSecret>("/tokens", token, `${key}-3`) };
    },
    ["organizations", "tokens", "overview"],
    ({ owner, token }) => onDone(owner, token),
  );
  return { create, organization };
}
