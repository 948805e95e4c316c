import { useSyncExternalStore } from "react";
import { flushSync } from "react-dom";
import type { TokenWithSecret } from "../../api/types.ts";

/** A token that was just created, to be shown until the user confirms that it is copied. */
export interface ShownSecret {
  title: string;
  token: TokenWithSecret;
  /** A further sentence about the token. */
  note?: string;
}

let shown: ShownSecret | null = null;
const watchers = new Set<() => void>();

function set(next: ShownSecret | null): void {
  shown = next;
  for (const tell of watchers) tell();
}

/**
 * Shows a secret over every page until it is confirmed: no navigation, sign-out or repeated rendering takes it away.
 * `closeForm` closes the dialog that asked for it, so that the focus goes back to where it came from.
 */
export function showSecret(secret: ShownSecret, closeForm: () => void): void {
  flushSync(closeForm);
  set(secret);
}

export function confirmSecret(): void {
  set(null);
}

/** The secret that is shown now, or null. */
export function useShownSecret(): ShownSecret | null {
  return useSyncExternalStore(
    (tell) => {
      watchers.add(tell);
      return () => watchers.delete(tell);
    },
    () => shown,
  );
}
