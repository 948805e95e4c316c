import { useQuery } from "@tanstack/react-query";
import { CreditCard } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { paymentTerms, useList } from "../../api/queries.ts";
import type { Checkout, NewCheckout, Organization, Payment, PaymentTerms } from "../../api/types.ts";
import { formatAmount, formatMoney } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { SelectField, TextField } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card } from "../../ui/page.tsx";
import { Badge, Empty, Note } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago, Credits } from "../../ui/values.tsx";
import { useFilters } from "../filters.tsx";
import { type Read, readCredits, shownError } from "../read-form.ts";
import { Summary } from "./booking-forms.tsx";

export type Offer = NonNullable<PaymentTerms["offer"]>;

const STATUSES = {
  paid: { label: "Paid", tone: "good" },
  partially_refunded: { label: "Partially refunded", tone: "plain" },
  refunded: { label: "Refunded", tone: "plain" },
  disputed: { label: "Disputed", tone: "warn" },
  withheld: { label: "Credits withheld", tone: "warn" },
} as const;

const COLUMNS: readonly Column<Payment>[] = [
  { head: "Payment", cell: ({ id }) => <span className="mono wrap-anywhere">{id}</span> },
  { head: "Paid", cell: ({ created_at }) => <Ago at={created_at} /> },
  { head: "Status", cell: ({ status }) => <Badge tone={STATUSES[status].tone}>{STATUSES[status].label}</Badge> },
  { head: "Amount", right: true, cell: ({ amount, currency }) => formatMoney(amount, currency) },
  {
    head: "Refunded",
    right: true,
    cell: ({ refunded, disputed, currency }) => formatMoney(refunded + disputed, currency),
  },
  { head: "Credits", right: true, cell: ({ credits }) => <Credits value={credits} /> },
  { head: "Debt covered", right: true, cell: ({ debt_covered }) => <Credits value={debt_covered} /> },
];

/** Payments of an organization with its debt, and the button to buy credits; nothing where there is neither. */
export function Payments({ organization }: { organization: Organization }) {
  const { may } = useAccess();
  const [isBuying, setBuying] = useState(false);
  const [{ payment }] = useFilters(["payment"]);
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/payments`;
  const { offer, debt } = useQuery(paymentTerms(organization.id)).data ?? { offer: null, debt: 0 };
  const list = useList<Payment>("organizations", path, {}, { isLive: offer !== null });
  if (offer === null && !list.rows?.length) return null;
  return (
    <Card
      title="Payments"
      flush
      actions={
        offer !== null &&
        may("credits:buy") && (
          <Button look="main" icon={CreditCard} onClick={() => setBuying(true)}>
            Buy credits
          </Button>
        )
      }
    >
      {payment === "canceled" && <Note>The payment was canceled. Nothing was charged.</Note>}
      {payment === "paid" && (
        <Note>Thank you. The payment appears here, with its credits granted, as soon as Stripe confirms it.</Note>
      )}
      {debt > 0 && (
        <Note tone="warn">
          {formatAmount(debt)} credits of refunded payments were already spent. The next payment covers them first.
        </Note>
      )}
      <Listing
        caption="Payments"
        list={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        skeletonRows={1}
        empty={<Empty icon={CreditCard} title="No payments yet" />}
      />
      {isBuying && offer !== null && (
        <BuyForm organization={organization} offer={offer} onClose={() => setBuying(false)} />
      )}
    </Card>
  );
}

const OTHER = "other";

function BuyForm({ organization, offer, onClose }: { organization: Organization; offer: Offer; onClose: () => void }) {
  const [isSubmitted, setSubmitted] = useState(false);
  const { amount, fields } = useAmount(offer, isSubmitted);
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/checkouts`;
  const checkout = useAction(
    (input: NewCheckout, key) => send<Checkout>("POST", path, input, key),
    ["organizations"],
    ({ url }) => location.assign(url),
  );
  const submit = () => {
    setSubmitted(true);
    const return_url = `${location.origin}${location.pathname}`;
    if ("value" in amount) checkout.mutate({ amount: amount.value, return_url });
  };
  const bought = "value" in amount ? creditsOf(amount.value, offer) : null;
  return (
    <DialogForm title="Buy credits" action="Continue to payment" attempt={checkout} onSubmit={submit} onClose={onClose}>
      {fields}
      <Summary text={bought === null ? null : `Buys ${formatAmount(bought)} credits. You pay on Stripe's page.`} />
    </DialogForm>
  );
}

/** Returns the chosen amount of an offer, and the fields to choose it. `initial`: the amount that is chosen at first. */
export function useAmount(offer: Offer, isSubmitted: boolean, initial?: number) {
  const { currency, packages, custom_amount } = offer;
  const isOther = initial !== undefined && packages.every((one) => one.amount !== initial);
  const [choice, setChoice] = useState(isOther ? OTHER : String(initial ?? packages[0]?.amount ?? OTHER));
  const [text, setText] = useState(isOther ? String(initial) : "");
  const amount = choice === OTHER ? readAmount(text, offer) : { value: Number(choice) };
  const fields = (
    <>
      <SelectField
        label="Amount"
        value={choice}
        onValue={setChoice}
        options={[
          ...packages.map((one) => [String(one.amount), formatMoney(one.amount, currency)] as const),
          ...(custom_amount === null ? [] : [[OTHER, "Other amount"] as const]),
        ]}
      />
      {choice === OTHER && custom_amount !== null && (
        <TextField
          label={`Other amount in ${currency.toUpperCase()}`}
          hint={`From ${formatMoney(custom_amount.minimum, currency)} to ${formatMoney(custom_amount.maximum, currency)}.`}
          inputMode="decimal"
          value={text}
          error={shownError(amount, text, isSubmitted)}
          onValue={setText}
        />
      )}
    </>
  );
  return { amount, fields };
}

/** Returns the credits that an amount of money buys. */
export function creditsOf(amount: number, { packages, credits_per_unit }: Offer): number {
  return packages.find((one) => one.amount === amount)?.credits ?? amount * credits_per_unit;
}

function readAmount(text: string, { custom_amount, currency }: Offer): Read<number> {
  const read = readCredits(text);
  if ("error" in read || custom_amount === null) return read;
  const { minimum, maximum } = custom_amount;
  if (read.value >= minimum && read.value <= maximum) return read;
  return { error: `Enter an amount from ${formatMoney(minimum, currency)} to ${formatMoney(maximum, currency)}.` };
}
