import { X } from "lucide-react";
import { type FormEvent, type ReactNode, useId, useLayoutEffect, useRef } from "react";
import { Button, IconButton } from "./button.tsx";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Beside the page instead of above its middle. */
  side?: boolean;
  className?: string;
}

/**
 * A dialog over the page: the browser keeps the focus in it, closes it by Escape, and gives the focus back. A press
 * beside it closes only what shows and asks nothing, so that nothing typed is lost.
 */
export function Dialog({ title, onClose, children, side = false, className = "" }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Closed before it is taken from the page: else the focus would not go back to where it came from.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    // A form is there to be filled in: the browser would begin with the button that closes it.
    dialog?.querySelector<HTMLElement>("form :is(input, select, textarea)")?.focus();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it by the browser's own doing
    <dialog
      ref={element}
      className={`dialog ${side ? "dialog-side" : ""} ${className}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (side && event.target === element.current) onClose();
      }}
    >
      <div className="dialog-box">
        <header className="dialog-head">
          <h2 id={id}>{title}</h2>
          <IconButton icon={X} label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}

interface DialogFormProps extends DialogProps {
  /** What the button says that does it. */
  action: string;
  busy: boolean;
  /** What went wrong when it was tried. */
  failure?: ReactNode;
  danger?: boolean;
  onSubmit: () => void;
}

/** A dialog that asks for something and then does it. */
export function DialogForm({ action, busy, failure, danger, onSubmit, children, ...dialog }: DialogFormProps) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (busy) return;
    const form = event.currentTarget;
    onSubmit();
    // Where something is wrong, that is where one goes on; it may be out of sight.
    requestAnimationFrame(() => {
      form.querySelector<HTMLElement>("[aria-invalid]")?.focus();
      form.querySelector(".field-error, .notice-bad")?.scrollIntoView({ block: "nearest" });
    });
  };
  return (
    <Dialog {...dialog}>
      <form onSubmit={submit} noValidate className="dialog-form">
        <div className="dialog-body">
          {children}
          {failure}
        </div>
        <footer className="dialog-foot">
          <Button onClick={dialog.onClose}>Cancel</Button>
          <Button type="submit" look={danger ? "danger" : "main"} busy={busy}>
            {action}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
