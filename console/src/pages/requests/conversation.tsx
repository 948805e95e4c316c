import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { conversation } from "../../api/queries.ts";
import type { Conversation as ConversationData } from "../../api/types.ts";
import { formatMoment } from "../../format/times.ts";
import { Note, QueryFailure, Skeleton } from "../../ui/states.tsx";
import { Markdown } from "../playground/markdown.tsx";
import "./conversation.css";

type Message = ConversationData["request"]["messages"][number];
type Reply = NonNullable<ConversationData["answer"]>["message"];

/** Stored prompt and answer of a request. Only text of the model is rendered as Markdown. */
export default function Conversation({ id }: { id: string }) {
  const query = useQuery(conversation(id));
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
