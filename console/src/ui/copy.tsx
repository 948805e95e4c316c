import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { Button, IconButton } from "./button.tsx";

const FEEDBACK_MS = 1600;

function useCopy(text: string) {
  const [state, setState] = useState<"ready" | "copied" | "refused">("ready");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      setState("refused");
    }
    setTimeout(() => setState("ready"), FEEDBACK_MS);
  };
  return { state, copy };
}

const MESSAGES = {
  ready: "",
  copied: "Copied",
  refused: "The browser blocked copying. Select the text and copy it manually.",
};

/** Button that copies a text and reports the result. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const { state, copy } = useCopy(text);
  return (
    <>
      <Button icon={state === "copied" ? Check : Copy} onClick={copy}>
        {state === "copied" ? "Copied" : label}
      </Button>
      <span role="status" className={state === "refused" ? "small bad" : "visually-hidden"}>
        {MESSAGES[state]}
      </span>
    </>
  );
}

/** Icon button that copies a text, for use next to a value. */
export function CopyIcon({ text, label }: { text: string; label: string }) {
  const { state, copy } = useCopy(text);
  return (
    <>
      <IconButton icon={state === "copied" ? Check : Copy} label={label} onClick={copy} />
      <span role="status" className="visually-hidden">
        {MESSAGES[state]}
      </span>
    </>
  );
}
