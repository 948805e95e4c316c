import type { ReactNode } from "react";
import { CopyButton } from "../ui/copy.tsx";

/** Code with a button that copies it, next to the controls that choose it. */
export function Code({ text, children }: { text: string; children?: ReactNode }) {
  return (
    <>
      <div className="row spread">
        {children ?? <span />}
        <CopyButton text={text} label="Copy code" />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard */}
      <pre className="code" tabIndex={0}>
        {text}
      </pre>
    </>
  );
}
