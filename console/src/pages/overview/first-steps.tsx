import { useQuery } from "@tanstack/react-query";
import { Circle, CircleCheck } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { models, pageOf, serviceFacts } from "../../api/queries.ts";
import type { AuditEntry, Operator, Overview } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Card } from "../../ui/page.tsx";
import { readStored, store } from "../../ui/stored.ts";

/** Key in the browser's storage: true once the steps are done or hidden. */
const STORED = "tollgate_first_steps_over";
/** Provider of the built-in models. */
const SANDBOX = "sandbox/";

interface Step {
  title: string;
  text: ReactNode;
  isDone: boolean;
}

/**
 * Returns the steps from the first start to production, with those that the service knows to be done; null for people who
 * cannot take them, once they are done or hidden, and where the figures are not of the whole service (`isWhole`). `isLoading`
 * until that is known.
 */
export function useFirstSteps(figures: Overview | undefined, isWhole: boolean) {
  const { may, isServiceWide } = useAccess();
  const [isOver, setOver] = useState(readStored(STORED) === true);
  const enabled = isWhole && isServiceWide && may("organizations:write") && !isOver;
  const catalog = useQuery({ ...models, enabled });
  const service = useQuery({ ...serviceFacts, enabled });
  const backups = useQuery({ ...pageOf<AuditEntry>(withQuery("/admin/v1/audit", BACKUPS)), enabled });
  const operators = useQuery({ ...pageOf<Operator>("/admin/v1/operators"), enabled });
  const end = () => {
    store(STORED, true);
    setOver(true);
  };
  const known = figures !== undefined && catalog.data && service.data && backups.data && operators.data;
  const done: Record<StepName, boolean> | null = known
    ? {
        provider: catalog.data.data.some(({ routes }) => routes?.some(({ route }) => !route.startsWith(SANDBOX))),
        customer: (figures.organizations?.active ?? 0) > 1,
        request: figures.totals.requests > 0 || figures.credits.used > 0,
        backup: backups.data.data.length > 0,
        people:
          service.data.identity_providers.length > 0 ||
          operators.data.data.filter(({ status }) => status === "active").length > 1,
      }
    : null;
  const isDone = done !== null && Object.values(done).every(Boolean);
  useEffect(() => {
    if (isDone) store(STORED, true);
  }, [isDone]);
  const hasFailed = [catalog, service, backups, operators].some(({ isError }) => isError);
  const isShown = enabled && done !== null && !isDone;
  const steps = isShown ? STEPS.map(([name, title, text]): Step => ({ title, text, isDone: done[name] })) : null;
  return { steps, isLoading: enabled && done === null && !hasFailed, end };
}

const BACKUPS = { action: "store.backup", limit: 1 };

type StepName = "provider" | "customer" | "request" | "backup" | "people";

const STEPS: readonly (readonly [name: StepName, title: string, text: ReactNode])[] = [
  [
    "provider",
    "Connect a provider",
    <>
      Start the service with a provider's key, such as <code>OPENAI_API_KEY</code>, or describe providers and models in{" "}
      <code>tollgate.yaml</code>. Its <Link href="/models">models</Link> then have prices.
    </>,
  ],
  [
    "customer",
    "Create the first customer",
    <>
      <Link href="/organizations?create=customer">New customer</Link> creates an organization with credits and a token.
    </>,
  ],
  [
    "request",
    "Send the first request",
    <>
      With the customer's token, or in the <Link href="/playground">playground</Link>, which also shows the code for an
      application.
    </>,
  ],
  [
    "backup",
    "Make a backup",
    <>
      Run <code>tollgate store backup FILE</code> every day. A backup that fails is reported by the{" "}
      <Link href="/warnings">warnings</Link>.
    </>,
  ],
  [
    "people",
    "Sign in by name",
    <>
      Configure an identity provider, or give each operator a token of their own with{" "}
      <code>tollgate operator create</code>. The <Link href="/audit">audit log</Link> then names people.
    </>,
  ],
];

/** Checklist of the first steps, which ends by itself when they are done. */
export function FirstSteps({ steps, onEnd }: { steps: readonly Step[]; onEnd: () => void }) {
  const left = steps.filter(({ isDone }) => !isDone).length;
  return (
    <Card
      title="First steps"
      about={`${steps.length - left} of ${steps.length} done`}
      actions={<Button onClick={onEnd}>Hide</Button>}
    >
      <ol className="first-steps">
        {steps.map(({ title, text, isDone }) => (
          <li key={title} className={isDone ? "done" : undefined}>
            {isDone ? <CircleCheck size={16} aria-hidden="true" /> : <Circle size={16} aria-hidden="true" />}
            <div>
              <strong>{title}</strong>
              {isDone ? <span className="visually-hidden"> Done</span> : <p className="small soft">{text}</p>}
            </div>
          </li>
        ))}
      </ol>
    </Card>
  );
}
