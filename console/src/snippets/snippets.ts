/** A completion request as the playground and the token dialog show it in code. */
export interface Call {
  baseUrl: string;
  /** A token to stand in the code itself; absent: the code takes it from the environment. */
  token?: string;
  body: CallBody;
}

export interface CallBody {
  model: string;
  messages: { role: string; content: string }[];
  instructions?: string;
  temperature?: number;
  max_tokens?: number;
  stream?: boolean;
}

const VARIABLE = "TOLLGATE_TOKEN";

/** A text as one word of a POSIX shell, whatever stands in it. */
function shellQuote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command to paste into a shell. */
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

/** A program for Node, with the package `openai`. */
export function typescriptOf({ baseUrl, body }: Call): string {
  const { instructions, ...known } = body;
  // Spread, because OpenAI's own types do not know the field.
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

/** A program for Python 3, with the package `openai`. */
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

function indent(text: string, by = 2): string {
  return text.replaceAll("\n", `\n${" ".repeat(by)}`);
}

/** JSON and Python agree on texts and numbers, but for characters beyond the basic plane, which JSON may leave as they are. */
function pythonValue(value: unknown): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value, null, 4);
}
