import { useState } from "react";
import { apiBaseUrl } from "../../base-path.ts";
import { type CallBody, curlOf, pythonOf, typescriptOf } from "../../snippets/snippets.ts";
import { CopyButton } from "../../ui/copy.tsx";
import { Dialog } from "../../ui/dialog.tsx";
import { Segments } from "../../ui/field.tsx";

const LANGUAGES = {
  curl: { label: "curl", write: curlOf, needs: "Set TOLLGATE_TOKEN to an API token." },
  typescript: {
    label: "TypeScript",
    write: typescriptOf,
    needs: "Run npm install openai, and set TOLLGATE_TOKEN to an API token.",
  },
  python: {
    label: "Python",
    write: pythonOf,
    needs: "Run pip install openai, and set TOLLGATE_TOKEN to an API token.",
  },
} as const;
type Language = keyof typeof LANGUAGES;

/** Dialog with code samples for the current request. */
export function CodeDialog({ body, onClose }: { body: CallBody; onClose: () => void }) {
  const [language, setLanguage] = useState<Language>("curl");
  const { write, needs } = LANGUAGES[language];
  const code = write({ baseUrl: apiBaseUrl(), body: { ...body, stream: true } });
  return (
    <Dialog title="Code for this request" onClose={onClose} className="dialog-wide">
      <div className="dialog-body">
        <div className="row spread">
          <Segments
            label="Language"
            value={language}
            options={Object.entries(LANGUAGES).map(([name, { label }]) => [name as Language, label] as const)}
            onValue={setLanguage}
          />
          <CopyButton text={code} label="Copy code" />
        </div>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard */}
        <pre className="code" tabIndex={0}>
          {code}
        </pre>
        <p className="small faint">{needs}</p>
      </div>
    </Dialog>
  );
}
