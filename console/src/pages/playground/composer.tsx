import { ArrowUp, Square } from "lucide-react";
import type { KeyboardEvent } from "react";
import { Button } from "../../ui/button.tsx";

interface ComposerProps {
  draft: string;
  placeholder: string;
  canSend: boolean;
  isStreaming: boolean;
  onDraft: (text: string) => void;
  onSend: () => void;
  onStop: () => void;
}

/** Returns true if a key press sends the message: Enter without Shift, outside of an input method's composition. */
export function sendsOn(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing;
}

export function Composer({ draft, placeholder, canSend, isStreaming, onDraft, onSend, onStop }: ComposerProps) {
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
    >
      <textarea
        aria-label="Message"
        placeholder={placeholder}
        rows={3}
        value={draft}
        onChange={(event) => onDraft(event.target.value)}
        onKeyDown={(event) => {
          if (!sendsOn(event)) return;
          event.preventDefault();
          onSend();
        }}
      />
      <div className="composer-foot">
        <span className="small faint wide-only">Enter to send, Shift+Enter for a new line</span>
        {isStreaming ? (
          <Button icon={Square} onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button type="submit" look="main" icon={ArrowUp} disabled={!canSend || draft.trim() === ""}>
            Send
          </Button>
        )}
      </div>
    </form>
  );
}
