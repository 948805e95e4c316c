import { useState } from "react";
import { apiBaseUrl } from "../base-path.ts";
import { Segments } from "../ui/field.tsx";
import { Code } from "./code.tsx";
import { type Call, type CallBody, claudeCodeOf, codexOf, curlOf, pythonOf, typescriptOf } from "./snippets.ts";

interface Client {
  label: string;
  write: (call: Call) => string;
  needs: string;
  /** True if the token is written into the code, which then needs nothing. */
  hasToken?: boolean;
  /** True for a coding agent, which takes no request. */
  isAgent?: boolean;
}

const TOKEN = "set TOLLGATE_TOKEN to an API token.";
const CLIENTS = {
  curl: { label: "curl", write: curlOf, needs: "Set TOLLGATE_TOKEN to an API token.", hasToken: true },
  typescript: { label: "TypeScript", write: typescriptOf, needs: `Run npm install openai, and ${TOKEN}` },
  python: { label: "Python", write: pythonOf, needs: `Run pip install openai, and ${TOKEN}` },
  claude: {
    label: "Claude Code",
    write: claudeCodeOf,
    needs: "Claude Code uses the model for small tasks as well.",
    isAgent: true,
  },
  codex: { label: "Codex", write: codexOf, needs: `Save this as ~/.codex/config.toml, and ${TOKEN}`, isAgent: true },
} satisfies Record<string, Client>;
type ClientName = keyof typeof CLIENTS;

interface SamplesProps {
  body: CallBody;
  /** Token to write into commands; by default they read it from the environment. */
  token?: string;
  /** Offers coding agents too. */
  withAgents?: boolean;
}

/** Code for a request in several languages, and the settings of coding agents. */
export function Samples({ body, token, withAgents = false }: SamplesProps) {
  const [name, setName] = useState<ClientName>("curl");
  const { write, needs, hasToken = false }: Client = CLIENTS[name];
  const code = write({ baseUrl: apiBaseUrl(), body, ...(token !== undefined && { token }) });
  const offered = Object.entries<Client>(CLIENTS).filter(([, { isAgent = false }]) => withAgents || !isAgent);
  return (
    <>
      <Code text={code}>
        <Segments
          label="Language"
          value={name}
          options={offered.map(([client, { label }]) => [client as ClientName, label] as const)}
          onValue={setName}
        />
      </Code>
      {(token === undefined || !hasToken) && <p className="small faint">{needs}</p>}
    </>
  );
}
