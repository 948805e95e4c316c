/** The client libraries that `npm run agents` tries and that the tests do not contain: one row for each. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { MEDIA_MODELS, type Place, type Program } from "./run.ts";
import { LAST_TEXT } from "./upstream.ts";

/** Parts that a task can have in addition to a text and the calls of tools: columns of the table. */
export const OFFERS = [
  ...(["list of models", "image", "text completions", "embeddings", "images", "speech", "transcription"] as const),
];

export interface Client extends Program {
  /** Endpoints that the client calls. */
  wire: string;
  /** Further parts of its task. */
  offers?: readonly (typeof OFFERS)[number][];
  /** True if it ignores errors within a stream, and shows the part that arrived. */
  ignoresErrorParts?: true;
}

/** Calls that the scripted upstream plays for clients that offer this tool. */
export const CLIENT_CALLS = [{ tool: "look", arguments: { what: "the door" } }];

/** A red pixel. */
const IMAGE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/** Runs a script of `clients/`, which fails unless each answer is right. */
function script(
  name: string,
  more: Record<string, string> = {},
): Pick<Client, "program" | "files" | "environment" | "arguments"> {
  return {
    program: "node",
    files: () => ({ "client.mjs": readFileSync(new URL(`clients/${name}.mjs`, import.meta.url), "utf8") }),
    environment: ({ url, token, model, embeddingModel }) => ({
      BASE_URL: `${url}/v1`,
      ORIGIN: url,
      TOKEN: token,
      MODEL: model,
      EMBEDDING_MODEL: embeddingModel,
      MEDIA_MODELS: JSON.stringify(MEDIA_MODELS),
      LAST_TEXT,
      IMAGE,
      ...more,
    }),
    arguments: ({ home }) => [join(home, "client.mjs")],
  };
}

/** Configuration of promptfoo: one test that compares the answer by its embedding. */
function promptfooConfiguration({ url, token, model, embeddingModel }: Place): string {
  const config = { apiBaseUrl: `${url}/v1`, apiKey: token };
  const provider = { id: `openai:embeddings:${embeddingModel}`, config };
  return JSON.stringify({
    prompts: ["Is all of it done?"],
    providers: [{ id: `openai:chat:${model}`, config }],
    tests: [
      {
        assert: [
          { type: "equals", value: LAST_TEXT },
          { type: "similar", value: "Done.", threshold: 0.9, provider },
        ],
      },
    ],
  });
}

/** The one optional package that promptfoo needs; all of them have a gigabyte. */
const LIBSQL = `@libsql/${process.platform}-${process.arch}${process.platform === "linux" ? "-gnu" : ""}`;
const LANGCHAIN_WIRES: Record<string, string> = {
  "@langchain/openai": "chat completions",
  "@langchain/anthropic": "messages",
};
const OPENAI_ENDPOINTS = "chat completions, responses, completions, embeddings, images, speech, transcriptions";

/** A row of the AI SDK with one of its packages. */
function aiSdk(name: string, ai: string, [provider, version]: [string, string], wire: string): Client {
  const embeds = wire.endsWith("embeddings") ? (["embeddings"] as const) : [];
  const packages = name.includes(" for ") ? { [provider]: version, ai } : { ai, [provider]: version };
  return { name, packages, wire, offers: ["image", ...embeds], ...script("ai", { PACKAGE: provider }) };
}

export const CLIENTS: readonly Client[] = [
  ...["4.104.0", "5.23.2", "6.30.1", "7.57.0"].map((version) => ({
    ...{ name: `openai ${version[0]}`, packages: { openai: version }, wire: OPENAI_ENDPOINTS },
    ...{ offers: OFFERS, ...script("openai") },
  })),
  {
    name: "Anthropic SDK",
    packages: { "@anthropic-ai/sdk": "1.12.0" },
    wire: "messages",
    offers: ["list of models", "image"],
    ...script("anthropic"),
  },
  {
    name: "Google Gen AI SDK",
    packages: { "@google/genai": "3.3.0" },
    wire: "Gemini",
    offers: ["list of models", "image"],
    ...script("genai"),
  },
  aiSdk("AI SDK 5", "5.0.277", ["@ai-sdk/openai", "2.0.131"], "responses, embeddings"),
  aiSdk("AI SDK 6", "6.0.326", ["@ai-sdk/openai", "3.0.141"], "responses, embeddings"),
  aiSdk("AI SDK 7", "7.0.173", ["@ai-sdk/openai", "4.0.118"], "responses, embeddings"),
  aiSdk(
    ...(["AI SDK 7 for compatible servers", "7.0.173"] as const),
    ["@ai-sdk/openai-compatible", "3.0.92"],
    "chat completions, embeddings",
  ),
  aiSdk("AI SDK 7 for Anthropic", "7.0.173", ["@ai-sdk/anthropic", "4.0.105"], "messages"),
  {
    name: "AI SDK 7 for Google",
    packages: { "@ai-sdk/google": "4.0.121", ai: "7.0.173" },
    wire: "Gemini",
    offers: ["image"],
    ...script("ai-google"),
  },
  ...Object.entries({
    "@langchain/openai": "1.6.0",
    "@langchain/anthropic": "1.5.11",
    "@langchain/google-genai": "2.3.2",
  }).map(([name, version]) => ({
    name: `LangChain, ${name.slice("@langchain/".length)}`,
    packages: { [name]: version, "@langchain/core": "1.4.0" },
    wire: LANGCHAIN_WIRES[name] ?? "Gemini",
    ...(name === "@langchain/google-genai" && { ignoresErrorParts: true as const }),
    ...{ offers: ["image"] as const, ...script("langchain", { PACKAGE: name }) },
  })),
  {
    name: "instructor",
    packages: { "@instructor-ai/instructor": "1.7.0", openai: "5.23.2", zod: "3.25.76" },
    wire: "chat completions",
    ...script("instructor"),
  },
  {
    name: "Agents SDK",
    packages: { "@openai/agents": "0.20.0", openai: "7.57.0", zod: "4.6.7" },
    wire: "responses",
    ...script("openai-agents"),
  },
  {
    name: "LlamaIndex",
    packages: { "@llamaindex/openai": "0.4.23", "@llamaindex/core": "0.6.23", "@llamaindex/env": "0.1.31" },
    wire: "chat completions, embeddings",
    offers: ["embeddings"],
    ...script("llamaindex"),
  },
  { name: "Mastra", packages: { "@mastra/core": "1.71.0" }, wire: "chat completions", ...script("mastra") },
  {
    name: "promptfoo",
    packages: { promptfoo: "0.123.1", [LIBSQL]: "0.5.29" },
    omitsOptional: true,
    wire: "chat completions, embeddings",
    offers: ["embeddings"],
    program: "promptfoo",
    files: (place) => ({ "promptfooconfig.json": promptfooConfiguration(place) }),
    offline: {
      PROMPTFOO_DISABLE_TELEMETRY: "1",
      PROMPTFOO_DISABLE_UPDATE: "1",
      PROMPTFOO_DISABLE_REMOTE_GENERATION: "1",
    },
    arguments: ({ home }) => ["eval", "--no-cache", "--no-progress-bar", "--config", `${home}/promptfooconfig.json`],
  },
];
