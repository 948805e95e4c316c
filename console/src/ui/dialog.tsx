import { X } from "lucide-react";
import { type FormEvent, type KeyboardEvent, type ReactNode, useId, useLayoutEffect, useRef, useState } from "react";
import { isOutcomeUnknown } from "../api/actions.ts";
import { Button, IconButton } from "./button.tsx";
import { Failure, Note } from "./states.tsx";

interface DialogProps {
  title: string;
  onClose: () => void;
  /** Runs on Escape; by default the dialog closes. */
  onEscape?: () => void;
  children: ReactNode;
  /** Beside the page instead of above its middle. */
  side?: boolean;
  /** Without a button in its head that closes it. */
  isLocked?: boolean;
  className?: string;
}

/**
 * A dialog over the page: the browser keeps the focus in it and gives the focus back. A click beside it closes only
 * what shows and asks for nothing, so that no input is lost.
 */
export function Dialog(props: DialogProps) {
  const { title, onClose, onEscape = onClose, children, side = false, isLocked = false, className = "" } = props;
  const element = useRef<HTMLDialogElement>(null);
  const isOpen = useRef(true);
  const id = useId();
  // Closed before it is taken from the page: else the focus would not go back to where it came from.
  useLayoutEffect(() => {
    const dialog = element.current;
    isOpen.current = true;
    dialog?.showModal();
    // The browser would focus the button that closes the dialog.
    dialog?.querySelector<HTMLElement>("form :is(input, select, textarea)")?.focus();
    return () => {
      isOpen.current = false;
      dialog?.close();
    };
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    // Else Chromium closes the dialog on a second Escape without asking the page.
    event.preventDefault();
    onEscape();
  };
  return (
    <dialog
      ref={element}
      className={`dialog ${side ? "dialog-side" : ""} ${className}`}
      aria-labelledby={id}
      onKeyDown={onKeyDown}
      onCancel={(event) => {
        event.preventDefault();
        onEscape();
      }}
      onClose={() => {
        // The browser closed it by itself, such as by the back gesture of a phone.
        if (!isOpen.current) return;
        element.current?.showModal();
        onEscape();
      }}
      onClick={(event) => {
        if (side && event.target === element.current) onClose();
      }}
    >
      <div className="dialog-box">
        <header className="dialog-head">
          <h2 id={id}>{title}</h2>
          {!isLocked && <IconButton icon={X} label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface DialogFormProps {
  title: string;
  /** Label of the button that submits. */
  action: string;
  /** The action that the form starts. */
  attempt: { isPending: boolean; isError: boolean; error: unknown };
  danger?: boolean;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/**
 * A dialog with a form. It stays open while its action runs, shows a failure, and asks before Escape discards what was
 * entered.
 */
export function DialogForm({ title, action, attempt, danger, onSubmit, onClose, children }: DialogFormProps) {
  const form = useRef<HTMLFormElement>(null);
  const hasInput = useRef(false);
  const [isLeaving, setLeaving] = useState(false);
  const busy = attempt.isPending;
  const close = () => {
    if (!busy) onClose();
  };
  const onEscape = () => {
    if (busy) return;
    if (hasInput.current) setLeaving(true);
    else onClose();
  };
  const stay = () => {
    form.current?.querySelector<HTMLElement>(":is(input, select, textarea)")?.focus();
    setLeaving(false);
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (busy || isLeaving) return;
    onSubmit();
    // The first invalid field may be out of sight.
    requestAnimationFrame(() => {
      form.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus();
      form.current?.querySelector(".field-error, .notice-bad")?.scrollIntoView({ block: "nearest" });
    });
  };
  return (
    <Dialog title={title} onClose={close} onEscape={onEscape}>
      <form
        ref={form}
        onSubmit={submit}
        onInput={() => {
          hasInput.current = true;
          setLeaving(false);
        }}
        noValidate
        className="dialog-form"
      >
        <div className="dialog-body">
          {children}
          {attempt.isError && <Failure error={attempt.error} />}
          {attempt.isError && isOutcomeUnknown(attempt.error) && (
            <Note tone="warn">
              The request may have been processed. You can safely submit it again: it is processed only once, unless you
              change or close this form.
            </Note>
          )}
        </div>
        {isLeaving ? (
          <Leave onStay={stay} onLeave={onClose} />
        ) : (
          <footer className="dialog-foot">
            <Button onClick={close}>Cancel</Button>
            <Button type="submit" look={danger ? "danger" : "main"} busy={busy}>
              {action}
            </Button>
          </footer>
        )}
      </form>
    </Dialog>
  );
}

/** Asks whether to discard what was entered. */
function Leave({ onStay, onLeave }: { onStay: () => void; onLeave: () => void }) {
  return (
    <footer className="dialog-foot">
      <p role="alert" className="dialog-question">
        Discard your changes?
      </p>
      <Button autoFocus onClick={onStay}>
        Keep editing
      </Button>
      <Button look="danger" onClick={onLeave}>
        Discard
      </Button>
    </footer>
  );
}
