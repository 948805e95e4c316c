import { useQuery } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import { flushSync } from "react-dom";
import { models, newestRequest } from "../../api/queries.ts";
import { useSteady } from "../../api/steady.ts";
import type { ReceiverWithSecret, TokenWithSecret, VoucherBatchWithCodes } from "../../api/types.ts";
import { formatExactCredits } from "../../format/numbers.ts";
import { Samples } from "../../snippets/samples.tsx";
import { Button } from "../../ui/button.tsx";
import { CopyButton } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Note, QueryFailure } from "../../ui/states.tsx";
import { StatusBadge } from "../requests/status.tsx";

/** Renders the dialog with a new secret, independent of the current page. */
export function SecretHost() {
  const shown = useShownSecret();
  if (shown === null) return null;
  const { id } = "token" in shown ? shown.token : "batch" in shown ? shown.batch : shown.receiver;
  return <Secret key={id} shown={shown} />;
}

/** Model of the sample command: inexpensive, and available unless the sandbox is disabled. */
export const SANDBOX_MODEL = "sandbox/echo";

/** Shows a secret once. Only the Done button closes the dialog. */
function Secret({ shown: secret }: { shown: ShownSecret }) {
  const [isReminded, setReminded] = useState(false);
  const copied = "token" in secret ? "token" : "batch" in secret ? "codes" : "secret";
  useEffect(() => {
    // The browser asks before the page is closed or reloaded, which would lose the secret.
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, []);
  return (
    <Dialog title={secret.title} isLocked onClose={confirmSecret} onEscape={() => setReminded(true)}>
      <div className="dialog-body">
        {"token" in secret && <NewToken {...secret} />}
        {"receiver" in secret && <NewSecret receiver={secret.receiver} />}
        {"batch" in secret && <NewCodes batch={secret.batch} />}
      </div>
      <footer className="dialog-foot">
        <p role="status" className="dialog-question">
          {isReminded && `Copy the ${copied}, then click Done.`}
        </p>
        <Button look="main" onClick={confirmSecret}>
          Done
        </Button>
      </footer>
    </Dialog>
  );
}

function NewToken({ token, note, showsRequests = true }: TokenSecret) {
  const offered = useQuery(models).data?.data.map(({ id }) => id) ?? [SANDBOX_MODEL];
  const model = token.models?.[0] ?? offered.find((id) => id === SANDBOX_MODEL) ?? offered[0] ?? SANDBOX_MODEL;
  const messages = [{ role: "user", content: "Hello, Tollgate!" }];
  return (
    <>
      {token.secret === undefined || token.secret === null ? (
        <Note tone="warn">
          An earlier attempt created this token, but its answer was lost. The secret can't be shown again. Rotate the
          token to get a new secret, or revoke it.
        </Note>
      ) : (
        <>
          <SecretText secret={token.secret} label="Copy token" />
          <section className="stack-small">
            <h3>Try it</h3>
            <Samples withAgents token={token.secret} body={{ model, messages }} />
          </section>
        </>
      )}
      {showsRequests && <FirstRequest tokenId={token.id} />}
      {note && <p>{note}</p>}
    </>
  );
}

function NewSecret({ receiver: { secret } }: { receiver: ReceiverWithSecret }) {
  if (secret === null) {
    return (
      <Note tone="warn">
        An earlier attempt was successful, but its answer was lost. The secret can't be shown again. Replace the secret
        of the receiver to get a new one.
      </Note>
    );
  }
  return (
    <>
      <SecretText secret={secret} label="Copy secret" />
      <p>
        The receiver verifies the signatures of deliveries with it, for example with a library of Standard Webhooks.
      </p>
    </>
  );
}

function NewCodes({ batch: { codes, amount, expires_at } }: { batch: VoucherBatchWithCodes }) {
  if (codes === null) {
    return (
      <Note tone="warn">
        An earlier attempt created these vouchers, but its answer was lost. The codes can't be shown again. Revoke the
        batch and create another one.
      </Note>
    );
  }
  const lines = codes.map((code) => `${code},${amount},${expires_at ?? ""}\r\n`);
  const csv = `code,credits,expires_at\r\n${lines.join("")}`;
  return (
    <>
      <Note tone="warn">Copy or download the codes now. You won't see them again.</Note>
      <div className="stack-small">
        <textarea className="mono" aria-label="Codes" readOnly rows={10} value={codes.join("\n")} />
        <div className="row">
          <CopyButton text={codes.join("\n")} label="Copy codes" />
          <a
            className="button button-plain"
            href={`data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`}
            download="vouchers.csv"
          >
            <Download size={15} strokeWidth={1.9} aria-hidden="true" />
            <span>Download CSV</span>
          </a>
        </div>
      </div>
    </>
  );
}

function SecretText({ secret, label }: { secret: string; label: string }) {
  return (
    <>
      <Note tone="warn">Copy it now. You won't see it again.</Note>
      <div className="stack-small">
        <code className="secret">{secret}</code>
        <div className="row">
          <CopyButton text={secret} label={label} />
        </div>
      </div>
    </>
  );
}

/** Waits for the first request of a new token, and shows it while it runs and when it has ended. */
function FirstRequest({ tokenId }: { tokenId: string }) {
  const query = useSteady(useQuery(newestRequest(tokenId)));
  const first = query.data?.data[0];
  return (
    <section className="stack-small">
      <h3>First request</h3>
      <QueryFailure query={query} />
      <p role="status" className="row">
        {first === undefined && !query.isError && <span className="soft">Waiting for a request with this token …</span>}
        {first !== undefined && (
          <>
            <StatusBadge status={first.status} />
            <span className="wrap-anywhere">{first.model ?? first.refusal?.endpoint}</span>
            <span className="figures">{formatExactCredits(first.charged)} credits</span>
            {first.failure !== null && <code>{first.failure}</code>}
          </>
        )}
      </p>
    </section>
  );
}

interface TokenSecret {
  title: string;
  token: TokenWithSecret;
  /** Additional note about the token. */
  note?: string;
  /** False if the person may not see requests. */
  showsRequests?: boolean;
}

/** New secret of a token or of a receiver, or codes of vouchers, shown until the user confirms that they are copied. */
export type ShownSecret =
  | TokenSecret
  | { title: string; receiver: ReceiverWithSecret }
  | { title: string; batch: VoucherBatchWithCodes };

let shown: ShownSecret | null = null;
const watchers = new Set<() => void>();

function set(next: ShownSecret | null): void {
  shown = next;
  for (const notify of watchers) notify();
}

/**
 * Shows a secret over every page until it is confirmed, even after navigation or sign-out. `closeForm` closes the
 * dialog that created the secret first, so that the focus returns to the right element.
 */
export function showSecret(secret: ShownSecret, closeForm: () => void): void {
  flushSync(closeForm);
  set(secret);
}

export function confirmSecret(): void {
  set(null);
}

/** Returns the secret that is currently shown, or null. */
export function useShownSecret(): ShownSecret | null {
  return useSyncExternalStore(
    (notify) => {
      watchers.add(notify);
      return () => watchers.delete(notify);
    },
    () => shown,
  );
}
