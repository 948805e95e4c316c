import { MessagesSquare, Pencil } from "lucide-react";
import { Fragment, useEffect, useRef, useState } from "react";
import { Button, IconButton } from "../../ui/button.tsx";
import { CopyIcon } from "../../ui/copy.tsx";
import { Empty, Failure } from "../../ui/states.tsx";
import { sendsOn } from "./composer.tsx";
import type { Turn } from "./conversation.ts";
import { figuresLine } from "./conversation.ts";
import { Markdown } from "./markdown.tsx";

interface TurnsProps {
  conversation: {
    turns: readonly Turn[];
    isStreaming: boolean;
    askAgain: (key: number, content: string) => void;
  };
  canSend: boolean;
}

/** Distance from the end within which new text scrolls into view. */
const NEAR_PX = 80;

export function Turns({ conversation: { turns, isStreaming, askAgain }, canSend }: TurnsProps) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when new text arrives
  useEffect(() => {
    const element = box.current;
    if (element !== null && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [turns]);
  return (
    <div
      className="turns"
      ref={box}
      role="log"
      aria-label="Conversation"
      aria-busy={isStreaming}
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
      {turns.map((turn) => (
        <Fragment key={turn.key}>
          {turn.role === "user" ? (
            <Question turn={turn} canSend={canSend} onAgain={(content) => askAgain(turn.key, content)} />
          ) : (
            <Answer turn={turn} />
          )}
        </Fragment>
      ))}
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
      <p className="wrap-anywhere">{turn.content}</p>
      <IconButton icon={Pencil} label="Edit and send again" onClick={() => setEdited(turn.content)} />
    </div>
  );
}

function Answer({ turn: { content, state, figures, failure } }: { turn: Turn }) {
  return (
    <div className="answer">
      {content !== "" && <Markdown text={content} />}
      {state === "streaming" && <span className="caret" role="status" aria-label="Generating" />}
      {state === "failed" && <Failure error={failure} />}
      {figures !== undefined && (
        <div className="answer-foot">
          <p className="small faint figures">{figuresLine(figures, state === "stopped")}</p>
          {content !== "" && <CopyIcon text={content} label="Copy answer" />}
        </div>
      )}
    </div>
  );
}
