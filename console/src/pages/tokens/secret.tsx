import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { models } from "../../api/queries.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { curlOf } from "../../snippets/snippets.ts";
import { Button } from "../../ui/button.tsx";
import { CopyButton } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Note } from "../../ui/states.tsx";
import { confirmSecret, type ShownSecret, useShownSecret } from "./shown-secret.ts";

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
