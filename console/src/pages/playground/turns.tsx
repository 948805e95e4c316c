import { MessagesSquare, Pencil, RotateCcw } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { Button, IconButton } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Empty, Failure } from "../../ui/states.tsx";
import { sendsOn } from "./composer.tsx";
import { figuresLine, questionKeys, type Turn } from "./conversation.ts";
import { Markdown } from "./markdown.tsx";
import { Picture } from "./picture.tsx";

interface TurnsProps {
  label: string;
  turns: readonly Turn[];
  /** The model of the column; null if there is only one. */
  model: string | null;
  canSend: boolean;
  /** Asks a changed question again, by its number, and forgets all after it. */
  onEdited: (question: number, content: string) => void;
  onRetry: () => void;
  /** Sends the results of tools by call. */
  onResults: (results: Record<string, string>) => void;
}

/** Distance from the end within which new text scrolls into view. */
const NEAR_PX = 80;

export function Turns({ label, turns, model, canSend, onEdited, onRetry, onResults }: TurnsProps) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when new text arrives
  useEffect(() => {
    const element = box.current;
    if (element !== null && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [turns]);
  const questions = questionKeys({ turns });
  return (
    <div
      className="turns"
      ref={box}
      role="log"
      aria-label={label}
      aria-busy={turns.at(-1)?.state === "streaming"}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard
      tabIndex={0}
      onScroll={({ currentTarget: at }) => {
        isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_PX;
      }}
    >
      {turns.length === 0 && (
        <Empty icon={MessagesSquare} title="Start a conversation">
          Each answer shows its tokens, its cost and its speed.
        </Empty>
      )}
      {turns.map((turn, index) => {
        const isLast = index === turns.length - 1;
        if (turn.role === "tool") return <ToolResult key={turn.key} turn={turn} />;
        if (turn.role === "assistant") {
          return (
            <Answer
              key={turn.key}
              turn={turn}
              isOfOtherModel={model !== null && turn.model !== undefined && turn.model !== model}
              onRetry={isLast && canSend ? onRetry : undefined}
              onResults={isLast && canSend ? onResults : undefined}
            />
          );
        }
        const question = questions.indexOf(turn.key);
        return (
          <Question key={turn.key} turn={turn} canSend={canSend} onAgain={(content) => onEdited(question, content)} />
        );
      })}
    </div>
  );
}

interface QuestionProps {
  turn: Turn;
  canSend: boolean;
  onAgain: (content: string) => void;
}

function Question({ turn, canSend, onAgain }: QuestionProps) {
  const [edited, setEdited] = useState<string | null>(null);
  const again = () => {
    if (edited === null || edited.trim() === "" || !canSend) return;
    setEdited(null);
    onAgain(edited);
  };
  if (edited !== null) {
    return (
      <div className="question question-edited">
        <textarea
          aria-label="Edit message"
          // biome-ignore lint/a11y/noAutofocus: it replaces the button that was pressed
          autoFocus
          rows={3}
          value={edited}
          onChange={(event) => setEdited(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") setEdited(null);
            if (!sendsOn(event)) return;
            event.preventDefault();
            again();
          }}
        />
        <div className="row end">
          <Button onClick={() => setEdited(null)}>Cancel</Button>
          <Button look="main" onClick={again} disabled={!canSend || edited.trim() === ""}>
            Send again
          </Button>
        </div>
      </div>
    );
  }
  return (
    <div className="question">
      <div className="question-content">
        {turn.content !== "" && <p className="wrap-anywhere">{turn.content}</p>}
        {turn.attachments?.map(({ name, type, url }) =>
          type.startsWith("image/") ? (
            <Picture key={name} url={url} alt={name} />
          ) : (
            <span key={name} className="small faint wrap-anywhere">
              {name}
            </span>
          ),
        )}
      </div>
      <IconButton icon={Pencil} label="Edit and send again" onClick={() => setEdited(turn.content)} />
    </div>
  );
}

interface AnswerProps {
  turn: Turn;
  /** True if another model than that of the column gave it. */
  isOfOtherModel: boolean;
  /** Absent while it cannot be asked again, or tools cannot return results. */
  onRetry: (() => void) | undefined;
  onResults: ((results: Record<string, string>) => void) | undefined;
}

function Answer({ turn, isOfOtherModel, onRetry, onResults }: AnswerProps) {
  const { content, state, figures, failure, images, toolCalls } = turn;
  return (
    <div className="answer">
      {isOfOtherModel && <p className="small faint wrap-anywhere">Answer of {turn.model}</p>}
      {content !== "" && <Markdown text={content} />}
      {images?.map((url, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the order of images never changes
        <Picture key={index} url={url} alt={`Image ${index + 1} of the answer`} />
      ))}
      {toolCalls !== undefined && <ToolCalls turn={turn} onResults={state === "done" ? onResults : undefined} />}
      {state === "streaming" && <span className="caret" role="status" aria-label="Generating" />}
      {state === "failed" && <Failure error={failure} />}
      {state !== "streaming" && (
        <div className="answer-foot">
          {figures !== undefined && <p className="small faint figures">{figuresLine(figures, state)}</p>}
          {figures === undefined && <p className="small faint">Nothing was charged</p>}
          {content !== "" && <CopyIcon text={content} label="Copy answer" />}
          {onRetry && <IconButton icon={RotateCcw} label="Retry" onClick={onRetry} />}
        </div>
      )}
    </div>
  );
}

/** Tools that an answer calls, with a field for the result of each. */
function ToolCalls({ turn: { toolCalls = [] }, onResults }: Pick<AnswerProps, "turn" | "onResults">) {
  const [results, setResults] = useState<Record<string, string>>({});
  return (
    <form
      className="stack-small"
      onSubmit={(event) => {
        event.preventDefault();
        onResults?.(Object.fromEntries(toolCalls.map(({ id }) => [id, results[id] ?? ""])));
      }}
    >
      {toolCalls.map(({ id, function: { name, arguments: text } }) => (
        <div key={id} className="stack-small">
          <pre className="code">{`${name}(${text})`}</pre>
          {onResults && (
            <textarea
              aria-label={`Result of ${name}`}
              placeholder={`Result of ${name}`}
              rows={2}
              value={results[id] ?? ""}
              onChange={(event) => setResults({ ...results, [id]: event.target.value })}
            />
          )}
        </div>
      ))}
      {onResults && (
        <div className="row">
          <Button type="submit">Send results</Button>
        </div>
      )}
    </form>
  );
}

function ToolResult({ turn: { content } }: { turn: Turn }) {
  return (
    <div className="question">
      <p className="wrap-anywhere mono small">{content === "" ? "Empty result" : content}</p>
    </div>
  );
}
