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
  /** Shows the dialog as a side panel. */
  side?: boolean;
  /** Omits the close button. */
  isLocked?: boolean;
  className?: string;
}

/**
 * Modal dialog. The browser keeps the focus inside and restores it afterwards. A click outside closes side panels only,
 * because other dialogs contain input that would be lost.
 */
export function Dialog(props: DialogProps) {
  const { title, onClose, onEscape = onClose, children, side = false, isLocked = false, className = "" } = props;
  const element = useRef<HTMLDialogElement>(null);
  const isOpen = useRef(true);
  const id = useId();
  // Closed before it is removed: otherwise the browser does not restore the focus.
  useLayoutEffect(() => {
    const dialog = element.current;
    isOpen.current = true;
    dialog?.showModal();
    // By default the browser focuses the close button.
    dialog?.querySelector<HTMLElement>("form :is(input, select, textarea)")?.focus();
    return () => {
      isOpen.current = false;
      dialog?.close();
    };
  }, []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    // Otherwise Chromium closes the dialog on a second Escape.
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
        // The browser closed the dialog, for example by the back gesture of a phone.
        if (!isOpen.current) return;
        element.current?.showModal();
        onEscape();
      }}
      onClick={(event) => {
        if (side && event.target === element.current) onClose();
      }}
    >
      <div className="dialog-box">
        {/* No header element: outside of main it would be a second banner. */}
        <div className="dialog-head">
          <h2 id={id}>{title}</h2>
          {!isLocked && <IconButton icon={X} label="Close" onClick={onClose} />}
        </div>
        {children}
      </div>
    </dialog>
  );
}

interface DialogFormProps {
  title: string;
  /** Label of the submit button. */
  action: string;
  /** State of the action that the form starts. */
  attempt: { isPending: boolean; isError: boolean; error: unknown };
  danger?: boolean;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/**
 * Dialog with a form. It stays open while its action runs, shows errors, and asks for confirmation before Escape
 * discards input.
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

/** Asks for confirmation before input is discarded. */
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
