import { claudeCodeOf, codexOf, indent, pythonValue, shellQuote, VARIABLE } from "./snippets.ts";

/** The reader of an example: their token, their model and the address of the service. */
export interface Reader {
  /** Address of the service with its base path, without `/v1`. */
  root: string;
  /** Token to write into the code; by default the code reads it from the environment. */
  token?: string | undefined;
  /** Model that chats. */
  model: string;
  otherModels: OtherModels;
}

/** Models that do not chat, by their capability. */
export type OtherModels = Record<"embeddings" | "images" | "speech" | "transcription", string>;

export type Language = "curl" | "typescript" | "python" | "shell" | "toml";
export type Examples = Partial<Record<Language, string>>;

const HELLO = [{ role: "user", content: "Hello, Tollgate!" }];
const WEATHER = {
  name: "get_weather",
  description: "Current weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const CITY = {
  name: "city",
  schema: {
    type: "object",
    properties: { name: { type: "string" }, country: { type: "string" } },
    required: ["name", "country"],
    additionalProperties: false,
  },
};

/** The address and the token of the reader of some code. */
export type CodeReader = Pick<Reader, "root" | "token">;

interface CurlCall {
  method?: string;
  path: string;
  /** Body as JSON. */
  body?: unknown;
  /** Body as the fields of a form. */
  form?: object;
  headers?: string[];
  /** File that receives the answer. */
  output?: string;
}

/** Returns a command that calls an operation, as a person with the token does. */
export function curlTo(
  { root, token }: CodeReader,
  { method = "POST", path, body, form, headers = [], output }: CurlCall,
): string {
  // With a body, curl sends a POST; an empty one would have the content type of a form.
  const isImplied = method === (body === undefined && form === undefined ? "GET" : "POST");
  const fields = Object.entries(form ?? {}).map(([name, value]) => `-F ${shellQuote(`${name}=${value}`)}`);
  const bearer =
    token === undefined ? `"Authorization: Bearer $${VARIABLE}"` : shellQuote(`Authorization: Bearer ${token}`);
  const lines = [
    `curl ${isImplied ? "" : `-X ${method} `}${shellQuote(`${root}${path}`)}`,
    `-H ${bearer}`,
    ...headers.map((header) => `-H ${shellQuote(header)}`),
    ...(body === undefined
      ? []
      : ["-H 'Content-Type: application/json'", `-d ${shellQuote(JSON.stringify(body, null, 2))}`]),
    ...fields,
    ...(output === undefined ? [] : [`--output ${output}`]),
  ];
  return lines.join(" \\\n  ");
}

const typescriptKey = ({ token }: CodeReader) =>
  token === undefined ? `process.env.${VARIABLE}` : JSON.stringify(token);
const pythonKey = ({ token }: CodeReader) =>
  token === undefined ? `os.environ["${VARIABLE}"]` : JSON.stringify(token);

/** A package that calls the API in TypeScript and in Python. */
interface Client {
  typescript: (reader: CodeReader) => string;
  python: (reader: CodeReader) => string;
}

export const OPENAI: Client = {
  typescript: (reader) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(`${reader.root}/v1`)}, apiKey: ${typescriptKey(reader)} });`,
  python: (reader) => `import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${reader.root}/v1`)}, api_key=${pythonKey(reader)})`,
};
export const ANTHROPIC: Client = {
  typescript: (reader) => `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: ${JSON.stringify(reader.root)}, authToken: ${typescriptKey(reader)} });`,
  python: (reader) => `import os

from anthropic import Anthropic

client = Anthropic(base_url=${JSON.stringify(reader.root)}, auth_token=${pythonKey(reader)})`,
};
export const GOOGLE: Client = {
  typescript: (reader) => `import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({
  apiKey: ${typescriptKey(reader)},
  httpOptions: { baseUrl: ${JSON.stringify(reader.root)} },
});`,
  python: (reader) => `import os

from google import genai

client = genai.Client(
    api_key=${pythonKey(reader)},
    http_options={"base_url": ${JSON.stringify(reader.root)}},
)`,
};

interface Call {
  path: string;
  client: Client;
  /** Method of the client in each language. */
  method: [typescript: string, python: string];
  body: Record<string, unknown>;
  /** Lines that print what `answer` has. */
  print: [typescript: string, python: string];
  headers?: string[];
}

/** Returns the same request in three languages. */
export function inAll(reader: CodeReader, { path, client, method, body, print, headers }: Call): Examples {
  const fields = Object.entries(body);
  const typescript = fields.map(([name, value]) => `  ${name}: ${indent(JSON.stringify(value, null, 2))},`);
  const python = fields.map(([name, value]) => `    ${name}=${indent(pythonValue(value), 4)},`);
  return {
    curl: curlTo(reader, { path, body, ...(headers && { headers }) }),
    typescript: `${client.typescript(reader)}

const answer = await client.${method[0]}({
${typescript.join("\n")}
});
${print[0]}
`,
    python: `${client.python(reader)}

answer = client.${method[1]}(
${python.join("\n")}
)
${print[1]}
`,
  };
}

const CHAT = {
  path: "/v1/chat/completions",
  client: OPENAI,
  method: ["chat.completions.create", "chat.completions.create"],
  print: ["console.log(answer.choices[0]?.message.content);", "print(answer.choices[0].message.content)"],
} satisfies Partial<Call>;

/** The file that one example writes and another one reads. */
const SOUND_FILE = "speech.wav";

/** Code for each task of the reference, by its id. */
export const EXAMPLES = {
  chat: (reader) => inAll(reader, { ...CHAT, body: { model: reader.model, messages: HELLO } }),
  stream: (reader) => ({
    ...inAll(reader, {
      ...CHAT,
      body: { model: reader.model, messages: HELLO, stream: true, stream_options: { include_usage: true } },
      print: [
        'for await (const chunk of answer) process.stdout.write(chunk.choices[0]?.delta.content ?? "");',
        'for chunk in answer:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)',
      ],
    }),
  }),
  tools: (reader) =>
    inAll(reader, {
      ...CHAT,
      body: {
        model: reader.model,
        messages: [{ role: "user", content: "How is the weather in Vienna?" }],
        tools: [{ type: "function", function: WEATHER }],
      },
      print: ["console.log(answer.choices[0]?.message);", "print(answer.choices[0].message)"],
    }),
  json: (reader) =>
    inAll(reader, {
      ...CHAT,
      body: {
        model: reader.model,
        messages: [{ role: "user", content: "Which is the capital of Austria?" }],
        response_format: { type: "json_schema", json_schema: CITY },
      },
    }),
  responses: (reader) =>
    inAll(reader, {
      path: "/v1/responses",
      client: OPENAI,
      method: ["responses.create", "responses.create"],
      body: { model: reader.model, input: "Hello, Tollgate!" },
      print: ["console.log(answer.output_text);", "print(answer.output_text)"],
    }),
  messages: (reader) =>
    inAll(reader, {
      path: "/v1/messages",
      client: ANTHROPIC,
      method: ["messages.create", "messages.create"],
      body: { model: reader.model, max_tokens: 1000, messages: HELLO },
      print: ["console.log(answer.content);", "print(answer.content)"],
      headers: ["anthropic-version: 2023-06-01"],
    }),
  gemini: (reader) => ({
    ...inAll(reader, {
      path: "",
      client: GOOGLE,
      method: ["models.generateContent", "models.generate_content"],
      body: { model: reader.model, contents: "Hello, Tollgate!" },
      print: ["console.log(answer.text);", "print(answer.text)"],
    }),
    curl: curlTo(reader, {
      path: `/v1beta/models/${reader.model}:generateContent`,
      body: { contents: [{ role: "user", parts: [{ text: "Hello, Tollgate!" }] }] },
    }),
  }),
  embeddings: (reader) =>
    inAll(reader, {
      path: "/v1/embeddings",
      client: OPENAI,
      method: ["embeddings.create", "embeddings.create"],
      body: { model: reader.otherModels.embeddings, input: ["Hello, Tollgate!"] },
      print: ["console.log(answer.data[0]?.embedding.length);", "print(len(answer.data[0].embedding))"],
    }),
  images: (reader) =>
    inAll(reader, {
      path: "/v1/images/generations",
      client: OPENAI,
      method: ["images.generate", "images.generate"],
      body: { model: reader.otherModels.images, prompt: "A red cat" },
      print: ["console.log(answer.data?.[0]?.b64_json);", "print(answer.data[0].b64_json)"],
    }),
  speech: (reader) => {
    const call = {
      path: "/v1/audio/speech",
      body: {
        ...{ model: reader.otherModels.speech, voice: "alloy" },
        ...{ input: "Hello, Tollgate!", response_format: "wav" },
      },
    };
    const examples = inAll(reader, {
      ...call,
      client: OPENAI,
      method: ["audio.speech.create", "audio.speech.create"],
      print: [
        `writeFileSync("${SOUND_FILE}", Buffer.from(await answer.arrayBuffer()));`,
        `answer.write_to_file("${SOUND_FILE}")`,
      ],
    });
    return {
      ...examples,
      curl: curlTo(reader, { ...call, output: SOUND_FILE }),
      typescript: `import { writeFileSync } from "node:fs";\n${examples.typescript}`,
    };
  },
  transcription: (reader) => {
    const model = reader.otherModels.transcription;
    return {
      curl: curlTo(reader, { path: "/v1/audio/transcriptions", form: { model, file: `@${SOUND_FILE}` } }),
      typescript: `import { createReadStream } from "node:fs";
${OPENAI.typescript(reader)}

const answer = await client.audio.transcriptions.create({
  model: ${JSON.stringify(model)},
  file: createReadStream("${SOUND_FILE}"),
});
console.log(answer.text);
`,
      python: `${OPENAI.python(reader)}

with open("${SOUND_FILE}", "rb") as file:
    answer = client.audio.transcriptions.create(model=${pythonValue(model)}, file=file)
print(answer.text)
`,
    };
  },
  models: (reader) => ({
    curl: [
      curlTo(reader, { method: "GET", path: "/v1/models" }),
      curlTo(reader, { method: "GET", path: "/v1/usage" }),
    ].join("\n\n"),
    typescript: `${OPENAI.typescript(reader)}

for await (const model of client.models.list()) console.log(model.id);
`,
    python: `${OPENAI.python(reader)}

for model in client.models.list():
  print(model.id)
`,
  }),
  retries: (reader) => ({
    curl: curlTo(reader, {
      path: CHAT.path,
      body: { model: reader.model, messages: HELLO },
      headers: ["Idempotency-Key: order-4711"],
    }),
  }),
  agents: ({ root, token, model }) => {
    const call = { baseUrl: `${root}/v1`, ...(token !== undefined && { token }), body: { model, messages: [] } };
    return { shell: claudeCodeOf(call), toml: codexOf(call) };
  },
} satisfies Record<string, (reader: Reader) => Examples>;
