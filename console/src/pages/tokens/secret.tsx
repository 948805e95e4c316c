import type { ReactNode } from "react";
import type { TokenWithSecret } from "../../api/types.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { curlOf } from "../../snippets/snippets.ts";
import { Button } from "../../ui/button.tsx";
import { CopyButton } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Note } from "../../ui/states.tsx";

interface SecretProps {
  title: string;
  token: TokenWithSecret;
  children?: ReactNode;
  onClose: () => void;
}

/** A token's secret, the one time that it can be seen. */
export function Secret({ title, token, children, onClose }: SecretProps) {
  const [model = "sandbox/echo"] = token.models ?? [];
  const example = curlOf({
    baseUrl: apiBaseUrl(),
    token: token.secret,
    body: { model, messages: [{ role: "user", content: "Hello, Tollgate!" }] },
  });
  return (
    <Dialog title={title} onClose={onClose}>
      <div className="dialog-body">
        <Note tone="warn">Copy it now: it is shown this once, and only its fingerprint is stored.</Note>
        <div className="stack-small">
          <code className="secret">{token.secret}</code>
          <div className="row">
            <CopyButton text={token.secret} label="Copy token" />
          </div>
        </div>
        {children}
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
      </div>
      <footer className="dialog-foot">
        <Button look="main" onClick={onClose}>
          I have kept it
        </Button>
      </footer>
    </Dialog>
  );
}
