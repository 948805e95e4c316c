import { useQuery } from "@tanstack/react-query";
import { CircleStop, CreditCard, Pencil } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import { paymentTerms, topUp as topUpQuery } from "../../api/queries.ts";
import type { CardSetup, NewTopUp, Organization, TopUp } from "../../api/types.ts";
import { formatAmount, formatMoney } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { Card, Facts } from "../../ui/page.tsx";
import { Badge, Failure, Note } from "../../ui/states.tsx";
import { useFilters } from "../filters.tsx";
import { readCredits, shownError } from "../read-form.ts";
import { CreditsField, Summary } from "./booking-forms.tsx";
import { creditsOf, type Offer, useAmount } from "./payments.tsx";

const STATUSES = {
  on: { label: "On", tone: "good" },
  paused: { label: "Paused", tone: "warn" },
  off: { label: "Off", tone: "plain" },
} as const;

/** Automatic top-up of an organization; nothing where it is neither offered nor set. */
export function AutomaticTopUp({ organization }: { organization: Organization }) {
  const { may } = useAccess();
  const [openDialog, setOpenDialog] = useState<"set" | "end" | null>(null);
  const [{ card: returned }] = useFilters(["card"]);
  const offer = useQuery(paymentTerms(organization.id)).data?.offer ?? null;
  const topUp = useQuery(topUpQuery(organization.id)).data;
  const isOffered = offer?.automatic_top_up === true;
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}/top-up`;
  const saving = useAction(
    () => beginCard(path),
    ["organizations"],
    (url) => location.assign(url),
  );
  if (topUp === undefined || (!isOffered && topUp.status === "off")) return null;
  const close = () => setOpenDialog(null);
  const { status, card } = topUp;
  return (
    <Card
      title="Automatic top-up"
      about="Charges a saved card when credits run low"
      actions={
        may("credits:buy") && (
          <>
            {status !== "off" && (
              <Button icon={CircleStop} onClick={() => setOpenDialog("end")}>
                Switch off
              </Button>
            )}
            {isOffered && status !== "off" && (
              <Button icon={CreditCard} busy={saving.isPending} onClick={() => saving.mutate(undefined)}>
                {card === null ? "Add card" : "Replace card"}
              </Button>
            )}
            {isOffered && (
              <Button icon={Pencil} onClick={() => setOpenDialog("set")}>
                {status === "off" ? "Set up" : "Edit top-up"}
              </Button>
            )}
          </>
        )
      }
    >
      {saving.isError && <Failure error={saving.error} />}
      {returned === "saved" && card === null && <Note>The card appears here as soon as Stripe confirms it.</Note>}
      {returned === "canceled" && <Note>No card was saved.</Note>}
      <State topUp={topUp} />
      {openDialog === "set" && offer !== null && <SetForm path={path} topUp={topUp} offer={offer} onClose={close} />}
      {openDialog === "end" && <EndForm path={path} onClose={close} />}
    </Card>
  );
}

function State({ topUp }: { topUp: TopUp }) {
  const { status, reason, threshold, amount, monthly_maximum, charged_this_month, currency, card } = topUp;
  const money = (value: number | null) => formatMoney(value ?? 0, currency ?? "");
  const badge = <Badge tone={STATUSES[status].tone}>{STATUSES[status].label}</Badge>;
  if (status === "off") return badge;
  return (
    <>
      {status === "paused" && (
        <Note tone="warn">
          Paused: {(reason ?? "").replaceAll("_", " ")}. Replace the card, or save the top-up again.
        </Note>
      )}
      {status === "on" && card === null && <Note tone="warn">Add a card. Nothing is charged without one.</Note>}
      <Facts
        facts={[
          ["Status", badge],
          ["Buys", `${money(amount)} when fewer than ${formatAmount(threshold ?? 0)} credits are available`],
          ["Charged this month", `${money(charged_this_month)} of at most ${money(monthly_maximum)}`],
          ["Card", card === null ? "None" : `${card.brand} ending in ${card.last4}`],
        ]}
      />
    </>
  );
}

interface FormProps {
  path: string;
  onClose: () => void;
}

/** Begins to save a card; returns the address of Stripe's page. Without an idempotency key: each page saves one card. */
async function beginCard(path: string): Promise<string> {
  const return_url = `${location.origin}${location.pathname}`;
  return (await send<CardSetup>("POST", `${path}/card`, { return_url })).url;
}

function SetForm({ path, topUp, offer, onClose }: FormProps & { topUp: TopUp; offer: Offer }) {
  const [threshold, setThreshold] = useState(String(topUp.threshold ?? ""));
  const [most, setMost] = useState(String(topUp.monthly_maximum ?? ""));
  const [isSubmitted, setSubmitted] = useState(false);
  const { amount, fields } = useAmount(offer, isSubmitted, topUp.amount ?? undefined);
  const set = useAction(
    async (input: NewTopUp, key) => {
      const { card } = await send<TopUp>("POST", path, input, key);
      return card === null ? await beginCard(path) : null;
    },
    ["organizations"],
    (url) => (url === null ? onClose() : location.assign(url)),
  );
  const credits = readCredits(threshold);
  const price = "value" in amount ? amount.value : 0;
  const read = readCredits(most);
  const monthly = "value" in read && read.value < price ? { error: "Must be at least the amount." } : read;
  const submit = () => {
    setSubmitted(true);
    if ("value" in amount && "value" in credits && "value" in monthly)
      set.mutate({ threshold: credits.value, amount: amount.value, monthly_maximum: monthly.value });
  };
  return (
    <DialogForm title="Automatic top-up" action="Save" attempt={set} onSubmit={submit} onClose={onClose}>
      <CreditsField
        label="Threshold in credits"
        text={threshold}
        read={credits}
        isSubmitted={isSubmitted}
        onText={setThreshold}
      />
      {fields}
      <TextField
        label={`Monthly maximum in ${offer.currency.toUpperCase()}`}
        hint="Of all charges in a calendar month (UTC)."
        inputMode="decimal"
        value={most}
        error={shownError(monthly, most, isSubmitted)}
        onValue={setMost}
      />
      <Summary
        text={
          "value" in amount && "value" in credits
            ? `Buys ${formatAmount(creditsOf(price, offer))} credits for ${formatMoney(price, offer.currency)} when fewer than ${formatAmount(credits.value)} are available.`
            : null
        }
      />
    </DialogForm>
  );
}

function EndForm({ path, onClose }: FormProps) {
  const end = useAction(() => send<TopUp>("DELETE", path), ["organizations"], onClose);
  return (
    <DialogForm
      title="Switch off automatic top-up?"
      action="Switch off"
      danger
      attempt={end}
      onSubmit={() => end.mutate(undefined)}
      onClose={onClose}
    >
      <p>Nothing is charged from now on. The card stays saved.</p>
    </DialogForm>
  );
}
