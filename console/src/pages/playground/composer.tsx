import { ArrowUp, Paperclip, Square, X } from "lucide-react";
import { type KeyboardEvent, type Ref, useRef, useState } from "react";
import { Button, IconButton } from "../../ui/button.tsx";
import { ACCEPTED, readFiles } from "./attachments.ts";
import type { Attachment } from "./conversation.ts";

interface ComposerProps {
  draft: string;
  attachments: readonly Attachment[];
  placeholder: string;
  canSend: boolean;
  /** Leads to the field for the organization that is charged; absent once there is one. */
  onSelectPayer: (() => void) | undefined;
  isStreaming: boolean;
  onDraft: (text: string) => void;
  onAttachments: (attachments: readonly Attachment[]) => void;
  onSend: () => void;
  onStop: () => void;
}

/** Returns true if a key press sends the message: Enter without Shift, outside of an input method's composition. */
export function sendsOn(event: KeyboardEvent): boolean {
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing;
}

export function Composer(props: ComposerProps) {
  const { draft, attachments, placeholder, onDraft, onAttachments, onSend } = props;
  const [error, setError] = useState<string | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const attach = async (files: readonly File[]) => {
    setError(null);
    try {
      onAttachments([...attachments, ...(await readFiles(files))]);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        onSend();
      }}
    >
      <Attached attachments={attachments} onAttachments={onAttachments} />
      {error !== null && (
        <p className="field-error" role="alert">
          {error}
        </p>
      )}
      <textarea
        aria-label="Message"
        placeholder={placeholder}
        rows={3}
        value={draft}
        onChange={(event) => onDraft(event.target.value)}
        onPaste={(event) => {
          const files = [...event.clipboardData.files];
          if (files.length === 0) return;
          event.preventDefault();
          void attach(files);
        }}
        onKeyDown={(event) => {
          if (!sendsOn(event)) return;
          event.preventDefault();
          onSend();
        }}
      />
      <div className="composer-foot">
        <span className="small faint wide-only">Enter to send, Shift+Enter for a new line</span>
        <FileInput input={input} onFiles={(files) => void attach(files)} />
        <IconButton icon={Paperclip} label="Attach images or files" onClick={() => input.current?.click()} />
        <MainAction {...props} />
      </div>
    </form>
  );
}

/** Button that sends the message, stops the answer, or leads to what is missing. */
function MainAction({ draft, attachments, canSend, isStreaming, onSelectPayer, onStop }: ComposerProps) {
  if (onSelectPayer !== undefined) {
    return (
      <Button look="main" onClick={onSelectPayer}>
        Select an organization
      </Button>
    );
  }
  if (isStreaming) {
    return (
      <Button icon={Square} onClick={onStop}>
        Stop
      </Button>
    );
  }
  const isEmpty = draft.trim() === "" && attachments.length === 0;
  return (
    <Button type="submit" look="main" icon={ArrowUp} disabled={!canSend || isEmpty}>
      Send
    </Button>
  );
}

/** The files that the next message has. */
function Attached({ attachments, onAttachments }: Pick<ComposerProps, "attachments" | "onAttachments">) {
  if (attachments.length === 0) return null;
  return (
    <ul className="attachments" aria-label="Attached files">
      {attachments.map((attachment) => (
        <li key={attachment.name}>
          <span className="truncate">{attachment.name}</span>
          <IconButton
            icon={X}
            label={`Remove ${attachment.name}`}
            onClick={() => onAttachments(attachments.filter((one) => one !== attachment))}
          />
        </li>
      ))}
    </ul>
  );
}

/** Hidden input that a button opens. */
function FileInput({ input, onFiles }: { input: Ref<HTMLInputElement>; onFiles: (files: File[]) => void }) {
  return (
    <input
      ref={input}
      type="file"
      aria-label="Files"
      accept={ACCEPTED}
      multiple
      hidden
      onChange={({ target }) => {
        onFiles([...(target.files ?? [])]);
        target.value = "";
      }}
    />
  );
}
