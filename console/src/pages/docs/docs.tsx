import { useQuery } from "@tanstack/react-query";
import { ArrowLeft, SearchX } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { withQuery } from "../../api/client.ts";
import { models, openApiDocument } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { useSession } from "../../shell/session.ts";
import { Code } from "../../snippets/code.tsx";
import { EXAMPLES, type Language, type OtherModels, type Reader } from "../../snippets/examples.ts";
import { Segments, SelectField, TextField } from "../../ui/field.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Empty, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { useFilters } from "../filters.tsx";
import { SANDBOX_MODEL } from "../tokens/secret.tsx";
import { type Operation, operationsOf } from "./document.ts";
import { OperationLinks, OperationList, OperationPage, withoutTicks } from "./reference.tsx";
import { TASKS, type Task } from "./tasks.ts";

const LANGUAGES: Record<Language, string> = {
  curl: "curl",
  typescript: "TypeScript",
  python: "Python",
  shell: "Claude Code",
  toml: "Codex",
};
const SANDBOX_OTHERS: OtherModels = {
  embeddings: "sandbox/embed",
  images: "sandbox/image",
  speech: "sandbox/speech",
  transcription: "sandbox/transcribe",
};

/** Reference of the API, by task and by operation, with the reader's own token, model and address in every example. */
export default function Docs() {
  const [{ task: taskId, operation: operationId }] = useFilters(["task", "operation"]);
  const query = useSteady(useQuery(openApiDocument));
  const task = TASKS.find(({ id }) => id === taskId) ?? TASKS[0];
  const { reader, fields } = useReader(task);
  const operations = query.data === undefined ? undefined : operationsOf(query.data);
  const operation = operations?.find((one) => one.operationId === operationId);
  if (operationId !== "") {
    return (
      <Page
        title={withoutTicks(operation?.summary ?? "Operation")}
        about={<PlaceOf operation={operation} />}
        actions={<Back />}
      >
        <QueryFailure query={query} />
        {query.isPending && <Skeleton height="24rem" />}
        {operations !== undefined && operation === undefined && (
          <Empty icon={SearchX} title="No operation with this name">
            <Link href="/docs">See all operations</Link>
          </Empty>
        )}
        {operation !== undefined && <OperationPage key={operationId} operation={operation} reader={reader} />}
      </Page>
    );
  }
  return (
    <Page
      title="API reference"
      about={
        <>
          Base URL: <code>{apiBaseUrl()}</code>
        </>
      }
    >
      {fields}
      <nav className="tabs" aria-label="Tasks">
        {TASKS.map(({ id, title }) => (
          <Link key={id} href={withQuery("/docs", { task: id })} aria-current={id === task?.id ? "page" : undefined}>
            {title}
          </Link>
        ))}
      </nav>
      {task && <TaskCard key={task.id} task={task} reader={reader} operations={operations ?? []} />}
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="40rem" />}
      {operations !== undefined && <OperationList operations={operations} />}
    </Page>
  );
}

function PlaceOf({ operation }: { operation: Operation | undefined }) {
  return (
    <span className="mono wrap-anywhere">{operation === undefined ? "" : `${operation.method} ${operation.path}`}</span>
  );
}

function Back() {
  return (
    <Link className="button button-plain" href="/docs">
      <ArrowLeft size={15} aria-hidden="true" />
      <span>All operations</span>
    </Link>
  );
}

/** Returns what the examples contain, and the fields that change those of a task. The token stays on the page. */
function useReader(task: Task | undefined): { reader: Reader; fields: React.ReactNode } {
  const { role } = useSession();
  const catalog = useQuery({ ...models, enabled: role !== null }).data?.data ?? [];
  const [token, setToken] = useState("");
  const [chosen, setChosen] = useState("");
  const idsWith = (capability: "chat" | keyof OtherModels) =>
    catalog.filter(({ capabilities }) => capabilities.includes(capability)).map(({ id }) => id);
  const otherModel = (capability: keyof OtherModels) => firstOf(idsWith(capability), SANDBOX_OTHERS[capability]);
  const chatModels = idsWith("chat");
  const model = chosen || firstOf(chatModels, SANDBOX_MODEL);
  const offered = chatModels.length === 0 ? [model] : chatModels;
  const reader = {
    root: apiBaseUrl().replace(/\/v1$/, ""),
    token: token.trim() === "" ? undefined : token.trim(),
    model,
    otherModels: {
      ...{ embeddings: otherModel("embeddings"), images: otherModel("images") },
      ...{ speech: otherModel("speech"), transcription: otherModel("transcription") },
    },
  };
  const examplesFor = (id: string) => task && JSON.stringify(EXAMPLES[task.id]({ ...reader, model: id }));
  // The examples of some tasks, such as images, contain a model that does not chat, or none.
  const hasModel = examplesFor("") !== examplesFor(model);
  const fields = (
    <div className="toolbar toolbar-fields">
      <TextField
        label="Your token"
        type="password"
        spellCheck={false}
        placeholder="sk-tg-…"
        hint="Appears in the examples. It stays on this page."
        value={token}
        onValue={setToken}
      />
      {hasModel && (
        <SelectField
          label="Model"
          hint="Appears in the examples."
          value={model}
          options={offered.map((id) => [id, id] as const)}
          onValue={setChosen}
        />
      )}
    </div>
  );
  return { reader, fields };
}

/** The sandbox model if it is offered, since it costs next to nothing; else the first one. */
function firstOf(ids: readonly string[], sandbox: string): string {
  return ids.includes(sandbox) ? sandbox : (ids[0] ?? sandbox);
}

interface TaskCardProps {
  task: Task;
  reader: Reader;
  operations: readonly Operation[];
}

function TaskCard({ task, reader, operations }: TaskCardProps) {
  const examples = Object.entries(EXAMPLES[task.id](reader)) as [Language, string][];
  const [chosen, setChosen] = useState<Language>("curl");
  const [language, code] = examples.find(([one]) => one === chosen) ?? examples[0] ?? ["curl", ""];
  const used = operations.filter(({ operationId }) => task.operations.includes(operationId));
  return (
    <Card title={task.title} about={task.text}>
      <div className="stack-small">
        <Code text={code}>
          <Segments
            label="Language"
            value={language}
            options={examples.map(([name]) => [name, LANGUAGES[name]] as const)}
            onValue={setChosen}
          />
        </Code>
        {reader.token === undefined && (
          <p className="small faint">Set TOLLGATE_TOKEN to a token, or enter yours above.</p>
        )}
        <OperationLinks operations={used} />
      </div>
    </Card>
  );
}
