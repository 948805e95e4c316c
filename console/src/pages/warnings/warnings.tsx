import { BellOff, BellRing, FlaskConical, KeyRound, type LucideIcon, Pencil, Trash2 } from "lucide-react";
import { type ComponentType, useState } from "react";
import { Link, Route, Switch } from "wouter";
import type { Receiver } from "../../api/types.ts";
import { formatDate } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Card, Facts, Page } from "../../ui/page.tsx";
import { Empty, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { Deliveries } from "./deliveries.tsx";
import { FORMATS, kindLabel } from "./kinds.ts";
import {
  DeleteReceiver,
  EditReceiver,
  EnableReceiver,
  type ReceiverProps,
  RotateReceiver,
  TestReceiver,
} from "./receiver-forms.tsx";
import { EventsOf, ReceiverStatus, Receivers, useReceivers } from "./receivers.tsx";

/** The receivers of warnings with what was delivered, and the page of one. */
export default function Warnings() {
  return (
    <Switch>
      <Route path="/warnings/:id">{({ id }) => <ReceiverPage key={id} id={id} />}</Route>
      <Route>
        <WarningsPage />
      </Route>
    </Switch>
  );
}

function WarningsPage() {
  const { isServiceWide } = useAccess();
  const { rows } = useReceivers();
  return (
    <Page
      title="Warnings"
      about={isServiceWide ? "Who is warned of what, and what was delivered" : "Who is warned of your organization"}
    >
      <Receivers />
      <Deliveries receivers={rows} />
    </Page>
  );
}

function ReceiverPage({ id }: { id: string }) {
  const list = useReceivers();
  const receiver = list.rows?.find((one) => one.id === id);
  if (receiver !== undefined) return <Loaded receiver={receiver} />;
  return (
    <Page title="Receiver">
      <QueryFailure query={list} />
      {list.isPending && <Skeleton height="24rem" />}
      {list.rows !== undefined && (
        <Empty icon={BellOff} title="This receiver does not exist">
          <Link href="/warnings">Go to the receivers</Link>
        </Empty>
      )}
    </Page>
  );
}

const FORMS = {
  test: TestReceiver,
  edit: EditReceiver,
  rotate: RotateReceiver,
  enable: EnableReceiver,
  delete: DeleteReceiver,
};
type Act = keyof typeof FORMS;

/** Buttons of a receiver. A mail address has no secret. */
function actsOf({ format, status }: Receiver): [act: Act, label: string, icon: LucideIcon][] {
  const isDisabled = status === "disabled";
  return [
    ...(isDisabled ? [] : ([["test", "Send test event", FlaskConical]] as [Act, string, LucideIcon][])),
    ["edit", "Edit", Pencil],
    ...(format === "mail" ? [] : ([["rotate", "Replace secret", KeyRound]] as [Act, string, LucideIcon][])),
    ["enable", isDisabled ? "Enable" : "Disable", isDisabled ? BellRing : BellOff],
    ["delete", "Delete", Trash2],
  ];
}

function Loaded({ receiver }: { receiver: Receiver }) {
  const { may } = useAccess();
  const [act, setAct] = useState<Act | null>(null);
  const Form: ComponentType<ReceiverProps> | null = act && FORMS[act];
  const { id, name, format, target, kinds, created_at, organization_id } = receiver;
  return (
    <Page
      title={name}
      about={<Link href="/warnings">All receivers</Link>}
      actions={
        may("receivers:write") &&
        actsOf(receiver).map(([one, label, icon]) => (
          <Button key={one} icon={icon} onClick={() => setAct(one)}>
            {label}
          </Button>
        ))
      }
    >
      <Card title="About">
        <Facts
          facts={[
            ["Status", <ReceiverStatus key="status" receiver={receiver} />],
            ["Send as", FORMATS.find(([known]) => known === format)?.[1] ?? format],
            [
              "Address",
              <span key="target" className="wrap-anywhere">
                {target}
              </span>,
            ],
            ["Events of", <EventsOf key="of" id={organization_id} />],
            ["Events", kinds === null ? "All events" : kinds.map(kindLabel).join(", ")],
            ["Created", formatDate(created_at)],
          ]}
        />
      </Card>
      <Deliveries receiverId={id} receivers={[receiver]} />
      {Form && <Form receiver={receiver} onClose={() => setAct(null)} />}
    </Page>
  );
}
