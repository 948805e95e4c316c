import { useState } from "react";
import { apiBaseUrl } from "../../base-path.ts";
import { Code } from "../../snippets/code.tsx";
import { Samples } from "../../snippets/samples.tsx";
import type { CallBody, ContentPart } from "../../snippets/snippets.ts";
import { codeOnWire, type Language, type Wire } from "../../snippets/wires.ts";
import { Dialog } from "../../ui/dialog.tsx";
import { Segments, SelectField } from "../../ui/field.tsx";

const WIRES: readonly (readonly ["chat" | Wire, string])[] = [
  ["chat", "Chat completions"],
  ["responses", "Responses"],
  ["messages", "Messages (Anthropic)"],
  ["gemini", "Gemini"],
];
const LANGUAGES: readonly (readonly [Language, string])[] = [
  ["curl", "curl"],
  ["typescript", "TypeScript"],
  ["python", "Python"],
];
const PACKAGES: Record<Wire, string> = {
  responses: "openai",
  messages: "@anthropic-ai/sdk for TypeScript, anthropic for Python",
  gemini: "@google/genai for TypeScript, google-genai for Python",
};

/** Dialog with code for the current request, on each wire and in each language. */
export default function CodeDialog({ body, onClose }: { body: CallBody; onClose: () => void }) {
  const [wire, setWire] = useState<"chat" | Wire>("chat");
  const [language, setLanguage] = useState<Language>("curl");
  const { short, hasFiles } = withoutData(body);
  const reader = { root: apiBaseUrl().replace(/\/v1$/, "") };
  return (
    <Dialog title="Code for this request" onClose={onClose} className="dialog-wide">
      <div className="dialog-body">
        <SelectField label="API" value={wire} options={WIRES} onValue={setWire} />
        {wire === "chat" ? (
          <Samples body={{ ...short, stream: true }} />
        ) : (
          <>
            <Code text={codeOnWire(wire, reader, short)[language]}>
              <Segments label="Language" value={language} options={LANGUAGES} onValue={setLanguage} />
            </Code>
            <p className="small faint">
              Set TOLLGATE_TOKEN to an API token.
              {language !== "curl" && ` Install the package ${PACKAGES[wire]}.`}
            </p>
          </>
        )}
        {hasFiles && <p className="small faint">Replace BASE64 with the content of your files.</p>}
      </div>
    </Dialog>
  );
}

/** Replaces the content of files, which may have megabytes. */
function withoutData(body: CallBody): { short: CallBody; hasFiles: boolean } {
  const shorten = (url: string) => url.replace(/^(data:[^,]*;base64,).*$/s, "$1BASE64");
  const partOf = (part: ContentPart): ContentPart => {
    if (part.type === "image_url") return { ...part, image_url: { url: shorten(part.image_url.url) } };
    if (part.type === "file") return { ...part, file: { ...part.file, file_data: shorten(part.file.file_data) } };
    return part;
  };
  const isList = (content: unknown): content is ContentPart[] => Array.isArray(content);
  const messages = body.messages.map((message) =>
    isList(message.content) ? { ...message, content: message.content.map(partOf) } : message,
  );
  const parts = body.messages.flatMap(({ content }) => (isList(content) ? content : []));
  return { short: { ...body, messages }, hasFiles: parts.some(({ type }) => type !== "text") };
}
