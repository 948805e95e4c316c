import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";
import { flushSync } from "react-dom";
import { models } from "../../api/queries.ts";
import type { TokenWithSecret } from "../../api/types.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { curlOf } from "../../snippets/snippets.ts";
import { Button } from "../../ui/button.tsx";
import { CopyButton } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Note } from "../../ui/states.tsx";

/** Place of the dialog with a new secret, outside of the pages. */
export function SecretHost() {
  const shown = useShownSecret();
  return shown && <Secret key={shown.token.id} {...shown} />;
}

/** Costs little, and is there unless the operator turned the sandbox off. */
const SANDBOX_MODEL = "sandbox/echo";

/** A token's secret, the one time that it can be seen. Only its button closes it. */
function Secret({ title, token, note }: ShownSecret) {
  const offered = useQuery(models).data?.data.map(({ id }) => id) ?? [SANDBOX_MODEL];
  const model = token.models?.[0] ?? offered.find((id) => id === SANDBOX_MODEL) ?? offered[0] ?? SANDBOX_MODEL;
  const [isReminded, setReminded] = useState(false);
  useEffect(() => {
    // Reloading or closing the page would lose the secret: the browser asks first.
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, []);
  return (
    <Dialog title={title} isLocked onClose={confirmSecret} onEscape={() => setReminded(true)}>
      <div className="dialog-body">
        {token.secret === undefined || token.secret === null ? (
          <Note tone="warn">
            An earlier attempt created this token, but its answer was lost. The secret can't be shown again. Rotate the
            token to get a new secret, or revoke it.
          </Note>
        ) : (
          <SecretText secret={token.secret} model={model} />
        )}
        {note && <p>{note}</p>}
      </div>
      <footer className="dialog-foot">
        <p role="status" className="dialog-question">
          {isReminded && "Copy the token, then click Done."}
        </p>
        <Button look="main" onClick={confirmSecret}>
          Done
        </Button>
      </footer>
    </Dialog>
  );
}

function SecretText({ secret, model }: { secret: string; model: string }) {
  const messages = [{ role: "user", content: "Hello, Tollgate!" }];
  const example = curlOf({ baseUrl: apiBaseUrl(), token: secret, body: { model, messages } });
  return (
    <>
      <Note tone="warn">Copy it now. You won't see it again.</Note>
      <div className="stack-small">
        <code className="secret">{secret}</code>
        <div className="row">
          <CopyButton text={secret} label="Copy token" />
        </div>
      </div>
      <div className="stack-small">
        <h3>Try it</h3>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by keyboard */}
        <pre className="code" tabIndex={0}>
          {example}
        </pre>
        <div className="row">
          <CopyButton text={example} label="Copy command" />
        </div>
      </div>
    </>
  );
}

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
