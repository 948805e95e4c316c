/** Completion request for the code samples of the playground and the token dialog. */
export interface Call {
  baseUrl: string;
  /** Token to include in the code; by default the code reads it from the environment. */
  token?: string;
  body: CallBody;
}

export type ContentPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "file"; file: { filename: string; file_data: string } };

export interface ToolCallPart {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface CallMessage {
  role: string;
  content: string | ContentPart[];
  tool_calls?: ToolCallPart[];
  tool_call_id?: string;
}

export interface FunctionTool {
  type: "function";
  function: { name: string; description?: string; parameters?: Record<string, unknown> };
}

export interface CallBody {
  model: string;
  messages: CallMessage[];
  instructions?: string;
  temperature?: number;
  max_tokens?: number;
  tools?: FunctionTool[];
  response_format?: { type: "json_schema"; json_schema: { name: string; schema: Record<string, unknown> } };
  stream?: boolean;
}

/** Variable of the environment that holds the token. */
export const VARIABLE = "TOLLGATE_TOKEN";

/** Quotes a text as one word for a POSIX shell. */
export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Returns a curl command. */
export function curlOf({ baseUrl, token, body }: Call): string {
  const authorization =
    token === undefined ? `"Authorization: Bearer $${VARIABLE}"` : shellQuote(`Authorization: Bearer ${token}`);
  const lines = [
    `curl ${body.stream ? "-N " : ""}${shellQuote(`${baseUrl}/chat/completions`)}`,
    `-H ${authorization}`,
    "-H 'Content-Type: application/json'",
    `-d ${shellQuote(JSON.stringify(body, null, 2))}`,
  ];
  return lines.join(" \\\n  ");
}

/** Returns a program for Node that uses the package `openai`. */
export function typescriptOf({ baseUrl, body }: Call): string {
  const { instructions, ...known } = body;
  // The types of `openai` do not contain the field; a spread satisfies the compiler.
  const own = instructions === undefined ? [] : [`  ...{ instructions: ${JSON.stringify(instructions)} },`];
  const fields = Object.entries(known).map(([name, value]) => `  ${name}: ${indent(JSON.stringify(value, null, 2))},`);
  const call = ["const completion = await client.chat.completions.create({", ...fields, ...own, "});"];
  const print = body.stream
    ? ['for await (const chunk of completion) process.stdout.write(chunk.choices[0]?.delta.content ?? "");']
    : ["console.log(completion.choices[0]?.message.content);"];
  return [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)}, apiKey: process.env.${VARIABLE} });`,
    "",
    ...call,
    ...print,
    "",
  ].join("\n");
}

/** Returns a program for Python 3 that uses the package `openai`. */
export function pythonOf({ baseUrl, body }: Call): string {
  const { instructions, ...known } = body;
  const fields = Object.entries(known).map(([name, value]) => `    ${name}=${indent(pythonValue(value), 4)},`);
  const own = instructions === undefined ? [] : [`    extra_body={"instructions": ${pythonValue(instructions)}},`];
  const print = body.stream
    ? [
        "for chunk in completion:",
        "    if chunk.choices:",
        '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
      ]
    : ["print(completion.choices[0].message.content)"];
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${pythonValue(baseUrl)}, api_key=os.environ["${VARIABLE}"])`,
    "",
    "completion = client.chat.completions.create(",
    ...fields,
    ...own,
    ")",
    ...print,
    "",
  ].join("\n");
}

/** Returns the commands that start Claude Code with a model. The base URL has no `/v1`. */
export function claudeCodeOf({ baseUrl, token, body }: Call): string {
  return [
    `export ANTHROPIC_BASE_URL=${shellQuote(baseUrl.replace(/\/v1$/, ""))}`,
    `export ANTHROPIC_AUTH_TOKEN=${token === undefined ? `"$${VARIABLE}"` : shellQuote(token)}`,
    `export ANTHROPIC_MODEL=${shellQuote(body.model)}`,
    `export ANTHROPIC_DEFAULT_HAIKU_MODEL=${shellQuote(body.model)}`,
    "claude",
    "",
  ].join("\n");
}

/** Returns the configuration of Codex, `~/.codex/config.toml`. A JSON string is a TOML string. */
export function codexOf({ baseUrl, body }: Call): string {
  return [
    `model = ${JSON.stringify(body.model)}`,
    'model_provider = "tollgate"',
    "",
    "[model_providers.tollgate]",
    'name = "Tollgate"',
    `base_url = ${JSON.stringify(baseUrl)}`,
    `env_key = "${VARIABLE}"`,
    'wire_api = "responses"',
    "",
  ].join("\n");
}

/** Indents all lines of a text but the first. */
export function indent(text: string, by = 2): string {
  return text.replaceAll("\n", `\n${" ".repeat(by)}`);
}

/** Formats a value as a Python literal. JSON strings and numbers are valid Python literals. */
export function pythonValue(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  const lines = entries.map(
    ([key, one]) => `    ${isList ? "" : `${JSON.stringify(key)}: `}${indent(pythonValue(one), 4)}`,
  );
  const [open, close] = isList ? ["[", "]"] : ["{", "}"];
  return lines.length === 0 ? `${open}${close}` : `${open}\n${lines.join(",\n")}\n${close}`;
}
