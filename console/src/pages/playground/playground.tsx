import { useQuery } from "@tanstack/react-query";
import { Code, Eraser } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { useSearchParams } from "wouter";
import type { Model } from "../../../../src/api/model.ts";
import { choices, serviceFacts } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import { ModelName, modelColors } from "../../charts/model-color.tsx";
import { formatCount } from "../../format/numbers.ts";
import { daysLabel } from "../../format/times.ts";
import { useSession } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Page } from "../../ui/page.tsx";
import { Note, QueryFailure } from "../../ui/states.tsx";
import { useIsStored, usePlaygroundModels, useTokens } from "./api.ts";
import { Composer } from "./composer.tsx";
import { type Attachment, conversationAfter, EMPTY_CONVERSATION, messagesOf, type Start } from "./conversation.ts";
import { useRun } from "./run.ts";
import { areRight, bodyOf, cheapestModel, maxTokensBound } from "./settings.ts";
import { canPay, focusPayer, PAYER_FILTER, type Payer, SettingsForm } from "./settings-form.tsx";
import { addColumn, type Column, change, changeColumn, clear, removeColumn, running, usePlayground } from "./store.ts";
import { Turns } from "./turns.tsx";
import "./playground.css";

const CodeDialog = lazy(() => import("./code-dialog.tsx"));

interface Draft {
  text: string;
  attachments: readonly Attachment[];
}
const NO_DRAFT: Draft = { text: "", attachments: [] };
const hasContent = ({ text, attachments }: Draft) => text.trim() !== "" || attachments.length > 0;
const questionOf = ({ text, attachments }: Draft): Start => ({ kind: "asked", content: text, attachments });

/** Playground: sends messages to up to three models through `/v1`, like an application. */
export default function Playground() {
  const { settings } = usePlayground();
  const { organizationId, payer } = useOrganization();
  const tokens = useTokens();
  const token = () => tokens(organizationId);
  const catalog = useSteady(usePlaygroundModels(token));
  const models = catalog.data?.filter(({ capabilities }) => capabilities.includes("chat"));
  const { columns, unknownModel } = useColumns(models);
  const maxTokens = useMaxTokens(models, columns);
  const [isShowingCode, setShowingCode] = useState(false);
  const [draft, setDraft] = useState(NO_DRAFT);
  const isEmpty = columns.every(({ conversation }) => conversation.turns.length === 0);
  return (
    <Page
      title="Playground"
      about={<About organizationId={organizationId} />}
      actions={
        <>
          <Button icon={Eraser} onClick={clear} disabled={isEmpty}>
            Clear
          </Button>
          <Button icon={Code} onClick={() => setShowingCode(true)}>
            View code
          </Button>
        </>
      }
    >
      <GuestNote />
      {unknownModel !== null && (
        <UnknownModel id={unknownModel} isListed={catalog.data?.some(({ id }) => id === unknownModel) === true} />
      )}
      <QueryFailure query={catalog} />
      <div className="playground">
        <Talk
          columns={columns}
          draft={draft}
          onDraft={setDraft}
          token={token}
          hasPayer={payer === "implied" || organizationId !== null}
          canSelectPayer={payer === "selected"}
          isRight={areRight(settings, maxTokens)}
        />
        <SettingsForm
          settings={settings}
          onSettings={(changes) => change({ settings: { ...settings, ...changes } })}
          models={models ?? (catalog.isError ? [] : undefined)}
          chosen={columns}
          onModel={(key, model) => changeColumn(key, (column) => ({ ...column, model }))}
          onAdd={() => addColumn(nextModel(models ?? [], columns))}
          canAdd={!isAnswering(columns)}
          onRemove={removeColumn}
          maxTokens={maxTokens}
          payer={payer}
          organizationId={organizationId}
          onOrganization={(id) => change({ organizationId: id })}
        />
      </div>
      {isShowingCode && (
        <Suspense>
          <CodeDialog
            body={bodyOf(settings, columns[0]?.model ?? "", shownMessages(columns, draft))}
            onClose={() => setShowingCode(false)}
          />
        </Suspense>
      )}
    </Page>
  );
}

const isAnswering = (columns: readonly Column[]) =>
  columns.some(({ conversation }) => conversation.turns.at(-1)?.state === "streaming");

interface TalkProps {
  columns: readonly Column[];
  draft: Draft;
  onDraft: (draft: Draft) => void;
  token: () => Promise<string>;
  hasPayer: boolean;
  /** True for operators, who select the organization that is charged. */
  canSelectPayer: boolean;
  /** False while a setting is invalid. */
  isRight: boolean;
}

/** The conversations with the models, and the field for the next message. */
function Talk({ columns, draft, onDraft, token, hasPayer, canSelectPayer, isRight }: TalkProps) {
  const run = useRun(token);
  const colorOf = modelColors(columns.map(({ model }) => model));
  const isStreaming = isAnswering(columns);
  const canSend = isRight && hasPayer && !isStreaming && columns.every(({ model }) => model !== "");
  const begin = (start: Start) => {
    for (const { key, model } of columns) void run(key, model, start);
  };
  const send = () => {
    if (!canSend || !hasContent(draft)) return;
    begin(questionOf(draft));
    onDraft(NO_DRAFT);
  };
  return (
    <div className="playground-talk">
      <div className="playground-columns">
        {columns.map(({ key, model, conversation }) => (
          <section key={key} aria-label={model} className="playground-column">
            {columns.length > 1 && (
              <h2 className="wrap-anywhere">
                <ModelName id={model} colorOf={colorOf}>
                  {model === "" ? "No model" : model}
                </ModelName>
              </h2>
            )}
            <Turns
              label={columns.length > 1 ? `Conversation with ${model}` : "Conversation"}
              turns={conversation.turns}
              model={columns.length > 1 ? model : null}
              canSend={canSend}
              onEdited={(question, content) => begin({ kind: "edited", question, content })}
              onRetry={() => void run(key, model, { kind: "retried" })}
              onResults={(results) => void run(key, model, { kind: "resulted", results })}
            />
          </section>
        ))}
      </div>
      <Composer
        draft={draft.text}
        attachments={draft.attachments}
        placeholder={hasPayer ? "Enter a message" : "Select an organization to start"}
        canSend={canSend}
        onSelectPayer={canSelectPayer && !hasPayer ? focusPayer : undefined}
        isStreaming={isStreaming}
        onDraft={(text) => onDraft({ ...draft, text })}
        onAttachments={(attachments) => onDraft({ ...draft, attachments })}
        onSend={send}
        onStop={() => {
          for (const controller of running.values()) controller.abort();
        }}
      />
    </div>
  );
}

/** Returns the messages of the next request, or of the last one. */
function shownMessages([first]: readonly Column[], draft: Draft) {
  const conversation = first?.conversation ?? EMPTY_CONVERSATION;
  if (!hasContent(draft) && conversation.turns.length > 0) {
    const last = conversation.turns.findLastIndex(({ role }) => role !== "assistant");
    return messagesOf(conversation.turns.slice(0, last + 1));
  }
  const next = hasContent(draft) ? questionOf(draft) : HELLO;
  return messagesOf(conversationAfter(conversation, next).turns);
}

const HELLO: Start = { kind: "asked", content: "Hello!" };

/** Returns the cheapest model that no column has yet. */
function nextModel(models: readonly Model[], columns: readonly Column[]): string {
  const others = models.filter(({ id }) => columns.every(({ model }) => model !== id));
  return cheapestModel(others.length > 0 ? others : models) ?? "";
}

function UnknownModel({ id, isListed }: { id: string; isListed: boolean }) {
  const reason = isListed
    ? "cannot be used in the playground, which tests chat models."
    : "is not a model that you can use.";
  return (
    <Note tone="warn">
      <p>
        <span className="mono wrap-anywhere">{id}</span> {reason} Select another one.
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

/** Returns the maximum of `max_tokens` for all chosen models; null until it is known. */
function useMaxTokens(models: readonly Model[] | undefined, columns: readonly Column[]): number | null {
  const { data: service } = useQuery(serviceFacts);
  const chosen = columns.flatMap(({ model }) => models?.find(({ id }) => id === model) ?? []);
  if (service === undefined || chosen.length === 0) return null;
  return Math.min(...chosen.map((model) => maxTokensBound(service.completions.max_tokens, model)));
}

/**
 * Returns the columns with their models. Until one is selected in the first column, it is the one in the URL or, without one,
 * the cheapest.
 */
function useColumns(models: readonly Model[] | undefined) {
  const { columns } = usePlayground();
  const [params] = useSearchParams();
  const asked = params.get("model") ?? "";
  // A link to a model leads to it, also where another one was selected before.
  useEffect(() => {
    if (asked !== "") changeColumn(0, (column) => ({ ...column, model: "" }));
  }, [asked]);
  const isOpen = columns[0]?.model === "";
  const isUnknown = isOpen && asked !== "" && models?.every(({ id }) => id !== asked) === true;
  const usual = isUnknown ? "" : asked || (models && cheapestModel(models)) || "";
  const chosen = columns.map((column) => (column.model === "" ? { ...column, model: usual } : column));
  return { columns: chosen, unknownModel: isUnknown ? asked : null };
}

/**
 * Returns the organization that is charged. Operators select it; if there is only one, it is selected. Members are charged to
 * their own, and guests are not charged.
 */
function useOrganization() {
  const { organizationId: picked } = usePlayground();
  const { role } = useSession();
  const isOperator = role === "operator";
  const { data } = useQuery({ ...choices("organizations", PAYER_FILTER), enabled: isOperator });
  const all = data?.next_cursor === null ? data.data.filter(canPay) : undefined;
  const payer: Payer = isOperator ? (all?.length === 0 ? "none" : "selected") : "implied";
  const only = all?.length === 1 ? (all[0]?.id ?? null) : null;
  return { payer, organizationId: isOperator ? (picked ?? only) : null };
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
