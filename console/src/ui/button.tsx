import type { LucideIcon } from "lucide-react";
import type { ComponentProps } from "react";

interface ButtonProps extends ComponentProps<"button"> {
  look?: "plain" | "main" | "quiet" | "danger";
  icon?: LucideIcon;
  /** True while its action runs: the button keeps the focus and ignores clicks. */
  busy?: boolean;
}

export function Button({ look = "plain", icon: Icon, busy = false, children, onClick, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={`button button-${look}`}
      aria-disabled={busy || undefined}
      onClick={busy ? (event) => event.preventDefault() : onClick}
    >
      {Icon && <Icon size={15} strokeWidth={1.9} aria-hidden="true" />}
      <span>{children}</span>
      {busy && <span className="spinner" aria-hidden="true" />}
    </button>
  );
}

interface IconButtonProps extends Omit<ComponentProps<"button">, "children"> {
  icon: LucideIcon;
  /** Accessible name and tooltip. */
  label: string;
}

export function IconButton({ icon: Icon, label, ...rest }: IconButtonProps) {
  return (
    <button type="button" {...rest} className="icon-button" aria-label={label} title={label}>
      <Icon size={16} strokeWidth={1.9} aria-hidden="true" />
    </button>
  );
}
