import { useQuery } from "@tanstack/react-query";
import { MessagesSquare } from "lucide-react";
import type { ReactNode } from "react";
import { useLocation } from "wouter";
import { conversation } from "../../api/queries.ts";
import type { Conversation as ConversationData, RequestDetail } from "../../api/types.ts";
import { formatMoment } from "../../format/times.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Note, QueryFailure, Skeleton } from "../../ui/states.tsx";
import type { Turn } from "../playground/conversation.ts";
import { Markdown } from "../playground/markdown.tsx";
import { FIRST_SETTINGS } from "../playground/settings.ts";
import { change, type Playground } from "../playground/store.ts";
import "./conversation.css";

type Message = ConversationData["request"]["messages"][number];
type Reply = NonNullable<ConversationData["answer"]>["message"];

/** Stored prompt and answer of a request. Only text of the model is rendered as Markdown. */
export default function Conversation({ detail }: { detail: RequestDetail }) {
  const query = useQuery(conversation(detail.id));
  const { may } = useAccess();
  const [, navigate] = useLocation();
  if (query.isError) {
    return <QueryFailure query={query} />;
  }
  if (query.data === undefined) return <Skeleton height="8rem" />;
  const { request, answer, is_truncated, kept_until } = query.data;
  const { messages, instructions, ...parameters } = request;
  return (
    <section className="stack-small" aria-label="Conversation">
      {is_truncated && (
        <Note tone="warn">Too long to store in full: earlier messages or the ends of texts are missing.</Note>
      )}
      {instructions !== undefined && (
        <MessageBlock who="instructions">
          <p className="said-text">{instructions}</p>
        </MessageBlock>
      )}
      {messages.map((message, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the order of messages never changes
        <MessageBlock key={index} who={message.name === undefined ? message.role : `${message.role}, ${message.name}`}>
          <MessageContent message={message} />
        </MessageBlock>
      ))}
      {answer === null ? (
        <p className="soft">No answer was delivered.</p>
      ) : (
        <MessageBlock who={`assistant, ${answer.finish_reason ?? "incomplete"}`}>
          <MessageContent message={answer.message} />
        </MessageBlock>
      )}
      <MessageBlock who="parameters">
        <Code text={JSON.stringify(parameters, null, 2)} />
      </MessageBlock>
      <p className="small faint">Stored until {formatMoment(kept_until)}.</p>
      {may("playground:use") && (
        <div>
          <Button
            icon={MessagesSquare}
            onClick={() => {
              change(playgroundOf(query.data, detail));
              navigate("/playground");
            }}
          >
            Continue in playground
          </Button>
        </div>
      )}
    </section>
  );
}

function MessageBlock({ who, children }: { who: string; children: ReactNode }) {
  return (
    <div className="said">
      <p className="small faint">{who}</p>
      {children}
    </div>
  );
}

function MessageContent({ message }: { message: Message | Reply }) {
  const { role, content, refusal, reasoning_content, tool_calls } = message;
  return (
    <>
      {reasoning_content && <p className="said-text faint">{reasoning_content}</p>}
      {content &&
        (role === "assistant" ? <Markdown text={textOf(content)} /> : <p className="said-text">{textOf(content)}</p>)}
      {refusal && <p className="said-text">{refusal}</p>}
      {tool_calls?.map((call) => (
        <Code key={call.id} text={`${call.function.name}(${call.function.arguments})`} />
      ))}
    </>
  );
}

/** Returns the state of the playground in which a stored conversation continues. */
function playgroundOf(
  { request, answer }: ConversationData,
  { organization_id, model }: RequestDetail,
): Partial<Playground> {
  const { messages, instructions, temperature, tools, response_format } = request;
  const system = messages.filter(({ role }) => role === "system" || role === "developer").map(textIn);
  const said = [...messages, ...(answer === null ? [] : [answer.message])].flatMap(turnOf);
  const conversation = { turns: said.map((turn, key) => ({ ...turn, key })), nextKey: said.length };
  const schema = response_format?.type === "json_schema" ? response_format.json_schema.schema : undefined;
  const settings = {
    ...FIRST_SETTINGS,
    instructions: [...system, instructions ?? ""].filter((text) => text !== "").join("\n\n"),
    temperature: temperature ?? null,
    ...(tools && {
      tools: JSON.stringify(
        tools.filter(({ type }) => type === "function"),
        null,
        2,
      ),
    }),
    ...(schema && { schema: JSON.stringify(schema, null, 2) }),
  };
  return { columns: [{ key: 0, model: model ?? "", conversation }], settings, organizationId: organization_id };
}

const textIn = ({ content }: Message | Reply) => (content ? textOf(content) : "");

function turnOf(message: Message | Reply): Omit<Turn, "key">[] {
  const { role, tool_calls } = message;
  const turn = { content: textIn(message), state: "done" as const };
  if (role === "user" || role === "assistant") {
    const toolCalls = tool_calls?.map(({ id, function: called }) => ({
      id,
      type: "function" as const,
      function: called,
    }));
    return [{ ...turn, role, ...(toolCalls && { toolCalls }) }];
  }
  return role === "tool" ? [{ ...turn, role, toolCallId: message.tool_call_id }] : [];
}

/** Returns the text of a message. Images, files and videos are shown by their name or URL only and never fetched. */
function textOf(content: NonNullable<Message["content"]>): string {
  return typeof content === "string" ? content : content.map(textOfPart).join("\n");
}

function textOfPart(part: Exclude<NonNullable<Message["content"]>, string>[number]): string {
  switch (part.type) {
    case "text":
      return part.text;
    case "refusal":
      return part.refusal;
    case "image_url":
      return `[image: ${part.image_url.url}]`;
    case "video_url":
      return `[video: ${part.video_url.url}]`;
    case "input_audio":
      return `[audio: ${part.input_audio.format}]`;
    case "file":
      return `[file: ${part.file.filename ?? part.file.file_url ?? part.file.file_id ?? "without a name"}]`;
  }
}

function Code({ text }: { text: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard
    <pre className="code" tabIndex={0}>
      {text}
    </pre>
  );
}
