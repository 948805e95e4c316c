import { useQuery } from "@tanstack/react-query";
import { Code, Eraser } from "lucide-react";
import { useState } from "react";
import { useSearchParams } from "wouter";
import type { Model } from "../../../../src/api/model.ts";
import { choices, serviceFacts } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import { formatCount } from "../../format/numbers.ts";
import { daysLabel } from "../../format/times.ts";
import { useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Page } from "../../ui/page.tsx";
import { Note, QueryFailure } from "../../ui/states.tsx";
import { useIsStored, usePlaygroundModels, useTokens } from "./api.ts";
import { CodeDialog } from "./code-dialog.tsx";
import { Composer } from "./composer.tsx";
import { messagesOf } from "./conversation.ts";
import { bodyOf, cheapestModel, FIRST_SETTINGS, maxTokensBound, maxTokensError } from "./settings.ts";
import { canPay, PAYER_FILTER, type Payer, SettingsForm } from "./settings-form.tsx";
import { Turns } from "./turns.tsx";
import { useConversation } from "./use-conversation.ts";
import "./playground.css";

/** Playground: sends messages to a model through `/v1`, like an application. */
export default function Playground() {
  const { organizationId, setOrganizationId, payer } = useOrganization();
  const tokens = useTokens();
  const token = () => tokens(organizationId);
  const catalog = useSteady(usePlaygroundModels(token));
  const { settings, setSettings, unknownModel } = useSettings(catalog.data);
  const [isShowingCode, setShowingCode] = useState(false);
  const [draft, setDraft] = useState("");
  const conversation = useConversation({ settings, token });
  const maxTokens = useMaxTokens(catalog.data, settings.model);
  const isRight = settings.model !== "" && maxTokensError(settings.maxTokens, maxTokens) === null;
  const hasPayer = payer === "implied" || organizationId !== null;
  const canSend = isRight && hasPayer && !conversation.isStreaming;
  const send = () => {
    if (!canSend || draft.trim() === "") return;
    void conversation.ask(draft);
    setDraft("");
  };
  const asked = [...messagesOf(conversation.turns), ...(draft.trim() === "" ? [] : [{ role: "user", content: draft }])];
  const shown = asked.length === 0 ? [{ role: "user", content: "Hello!" }] : asked;
  return (
    <Page
      title="Playground"
      about={<About organizationId={organizationId} />}
      actions={
        <>
          <Button icon={Eraser} onClick={conversation.clear} disabled={conversation.turns.length === 0}>
            Clear
          </Button>
          <Button icon={Code} onClick={() => setShowingCode(true)}>
            View code
          </Button>
        </>
      }
    >
      <GuestNote />
      {unknownModel !== null && <UnknownModel id={unknownModel} />}
      <QueryFailure query={catalog} />
      <div className="playground">
        <div className="playground-talk">
          <Turns conversation={conversation} canSend={canSend} />
          <Composer
            draft={draft}
            placeholder={hasPayer ? "Enter a message" : "Select an organization to start"}
            canSend={canSend}
            isStreaming={conversation.isStreaming}
            onDraft={setDraft}
            onSend={send}
            onStop={conversation.stop}
          />
        </div>
        <SettingsForm
          settings={settings}
          onSettings={(changes) => setSettings({ ...settings, ...changes })}
          models={catalog.data ?? (catalog.isError ? [] : undefined)}
          maxTokens={maxTokens}
          payer={payer}
          organizationId={organizationId}
          onOrganization={setOrganizationId}
        />
      </div>
      {isShowingCode && <CodeDialog body={bodyOf(settings, shown)} onClose={() => setShowingCode(false)} />}
    </Page>
  );
}

function UnknownModel({ id }: { id: string }) {
  return (
    <Note tone="warn">
      <p>
        <span className="mono wrap-anywhere">{id}</span> is not a model that you can use. Select another one.
      </p>
    </Note>
  );
}

function About({ organizationId }: { organizationId: string | null }) {
  const isStored = useIsStored(organizationId);
  const { data } = useQuery(serviceFacts);
  const days = data === undefined ? "a limited time" : daysLabel(data.conversation_days);
  return (
    <>
      Test a model.
      {isStored === true && ` Prompts and answers are stored for ${days} and can be read by the operator.`}
      {isStored === false && " The conversation stays on this page."}
    </>
  );
}

/** Returns the maximum of `max_tokens` for a model; null until it is known. */
function useMaxTokens(models: readonly Model[] | undefined, id: string): number | null {
  const { data: service } = useQuery(serviceFacts);
  const model = models?.find((one) => one.id === id);
  if (service === undefined || model === undefined) return null;
  return maxTokensBound(service.completions.max_tokens, model);
}

/** Returns the settings. Until a model is selected, it is the one in the URL or, without one, the cheapest. */
function useSettings(models: readonly Model[] | undefined) {
  const [params] = useSearchParams();
  const [settings, setSettings] = useState(FIRST_SETTINGS);
  const asked = params.get("model") ?? "";
  const isUnknown = settings.model === "" && asked !== "" && models?.every(({ id }) => id !== asked) === true;
  const model = settings.model || (isUnknown ? "" : asked || (models && cheapestModel(models)) || "");
  return { settings: { ...settings, model }, setSettings, unknownModel: isUnknown ? asked : null };
}

/**
 * Returns the organization that is charged. Operators select it, and none is selected by default. Members are charged
 * to their own, and guests are not charged.
 */
function useOrganization() {
  const { role } = useSession();
  const isOperator = role === "operator";
  const { data } = useQuery({ ...choices("organizations", PAYER_FILTER), enabled: isOperator });
  const [picked, setPicked] = useState<string | null>(null);
  const hasNone = data !== undefined && data.next_cursor === null && !data.data.some(canPay);
  const payer: Payer = isOperator ? (hasNone ? "none" : "selected") : "implied";
  return { payer, organizationId: isOperator ? picked : null, setOrganizationId: setPicked };
}

function GuestNote() {
  const { role } = useSession();
  const service = useQuery(serviceFacts);
  const guests = service.data?.guest_playground;
  if (role !== null || guests === undefined) return null;
  return (
    <Note>
      <p>
        You are a guest. Free of charge: {formatCount(guests.requests_per_minute)} requests per minute,{" "}
        {formatCount(guests.max_tokens)} tokens per answer, and {formatCount(guests.tokens_per_day)} tokens per day
        shared by all guests.
      </p>
    </Note>
  );
}
