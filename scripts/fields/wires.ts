/** The three providers' requests: their published types, and how the service reads and sends them. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Definition } from "ts-json-schema-generator";
import { decodeChatCompletion } from "../../src/api/chat/decode.ts";
import { decodeGenerateContent } from "../../src/api/gemini/decode.ts";
import { decodeMessages } from "../../src/api/messages/decode.ts";
import { decodeResponses } from "../../src/api/responses/decode.ts";
import type { DecodedCompletion } from "../../src/api/wire.ts";
import { fitFields } from "../../src/providers/fields.ts";
import { DEFAULT_REQUEST_FORMAT, refusedHints, toRequestBody } from "../../src/providers/openai/request.ts";
import type { UpstreamRequest } from "../../src/providers/provider.ts";
import { KNOWN_PROVIDERS } from "../../src/providers/registry.ts";
import { type PublishedRequest, schemaOf } from "./published.ts";
import type { Wire } from "./treatment.ts";

export interface PublishedWire extends Wire, Pick<PublishedRequest, "samples" | "needs"> {
  name: string;
  /** The package and its version. */
  source: string;
  schema(): Definition;
}

const MODEL = "gpt-5-mini";
const TYPES = fileURLToPath(new URL("types.ts", import.meta.url));
const TSCONFIG = fileURLToPath(new URL("../../tsconfig.json", import.meta.url));

function versionOf(name: string): string {
  const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
  return `\`${name}\` ${JSON.parse(readFileSync(file, "utf8")).version}`;
}

/** Written by `node scripts/fields-table.ts --gemini FOLDER`: installed here, the package would bring 18 others. */
const GEMINI = new URL("gemini.json", import.meta.url);
interface GeminiTypes {
  version: string;
  schema: Definition;
}
const gemini = (): GeminiTypes => JSON.parse(readFileSync(GEMINI, "utf8"));

/** The body of a request: Google's package declares its parts, and sends the options of a call in several places of it. */
const GEMINI_REQUEST = `
import type {
  Content, GenerateContentConfig, GenerationConfig, SafetySetting, Tool, ToolConfig,
} from "./node_modules/@google/genai/dist/genai.d.ts";
type Options = "cachedContent" | "labels" | "serviceTier" | "store" | "continuationToken" | "modelArmorConfig";
export interface GeminiRequest extends Pick<GenerateContentConfig, Options> {
  contents: Content[];
  systemInstruction?: Content;
  tools?: Tool[];
  toolConfig?: ToolConfig;
  safetySettings?: SafetySetting[];
  generationConfig?: GenerationConfig & Pick<GenerateContentConfig, "imageConfig" | "generationOutputConfig">;
}`;

/** Writes the types of the package that is installed in a folder. */
export function writeGeminiTypes(folder: string): void {
  const file = join(folder, "gemini-request.ts");
  writeFileSync(file, GEMINI_REQUEST);
  const schema = withoutDescriptions(schemaOf(file, "GeminiRequest", TSCONFIG));
  const { version } = JSON.parse(readFileSync(join(folder, "node_modules/@google/genai/package.json"), "utf8"));
  writeFileSync(GEMINI, `${JSON.stringify({ version, schema }, null, 1)}\n`);
}

function withoutDescriptions(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutDescriptions);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([name, text]) => name !== "description" || typeof text !== "string");
  return Object.fromEntries(entries.map(([name, inner]) => [name, withoutDescriptions(inner)]));
}

const ADDRESS = "https://files.example.com/a";
const DATA = "data:application/pdf;base64,AAAA";
const PNG = "data:image/png;base64,AAAA";

/** A chat completion as OpenAI receives it. */
function sentToOpenAi({ request }: DecodedCompletion): ReturnType<Wire["sent"]> {
  const { requestFormat } = KNOWN_PROVIDERS.find(({ id }) => id === "openai") ?? {};
  const format = { ...DEFAULT_REQUEST_FORMAT, ...requestFormat };
  const { max_completion_tokens: stated, max_tokens: most = stated, metadata, ...rest } = request;
  const upstream = { ...rest, max_tokens: most ?? 100, stream: request.stream === true } as UpstreamRequest;
  const { request: fitted, ignored } = fitFields(upstream, format.fields);
  // Labels are stored with the charge.
  const body = { ...JSON.parse(toRequestBody(fitted, format)), ...(metadata && { labels: metadata }) };
  return { body, ignored: [...ignored, ...refusedHints(fitted, format)] };
}

const sentNative = ({ native, request: { metadata } }: DecodedCompletion): ReturnType<Wire["sent"]> => ({
  body: { ...native?.body, needed: native?.needed, ...(metadata && { labels: metadata }) },
  ignored: [],
});

const always = (fields: object) => () => ({ ...fields });
const FUNCTION = { type: "object", properties: {} };

/** A request has tools, or the functions from the time before them. */
function withoutToolsIfFunctions(body: unknown): unknown {
  const { tools: _tools, ...others } = body as Record<string, unknown>;
  return others.functions === undefined ? body : others;
}

const chat: PublishedWire = {
  name: "Chat completions",
  source: versionOf("openai"),
  schema: () => schemaOf(TYPES, "Chat", TSCONFIG),
  base: {
    model: MODEL,
    messages: [{ role: "user", content: "Go" }],
    tools: [
      { type: "function", function: { name: "x" } },
      { type: "custom", custom: { name: "y" } },
    ],
  },
  samples: [
    [/^messages$/, [{ role: "user", content: "Go" }]],
    [/^n$/, 2],
    [/^temperature$/, 0.5],
    [/\.url$/, PNG],
    [/^metadata$/, { a: "b" }],
    [/input_audio\.data$/, "AAAA"],
    [/content\.file$/, { file_data: DATA }],
    [/\.file_data$/, DATA],
    [/custom\.format\.type$/, "text"],
    [/allowed_tools\.tools$/, [{ type: "function", function: { name: "x" } }]],
    [/^tool_choice\.custom$/, { name: "y" }],
    [/^tool_choice\.custom\.name$/, "y"],
  ],
  needs: [
    [/^messages\[assistant\]$/, (field) => (field === "content" ? {} : { content: "x" })],
    [/content\[file\]\.file$/, (field) => (field === "file_data" ? {} : { file_data: DATA })],
  ],
  own: ["stream_options", "stream_options.include_usage", "store"],
  decode: (body) => decodeChatCompletion(withoutToolsIfFunctions(body)),
  sent: sentToOpenAi,
};

const responses: PublishedWire = {
  name: "Responses",
  source: versionOf("openai"),
  schema: () => schemaOf(TYPES, "Responses", TSCONFIG),
  base: {
    model: MODEL,
    input: "Go",
    tools: [
      { type: "function", name: "x", parameters: FUNCTION, strict: false },
      { type: "custom", name: "y" },
      { type: "shell", environment: { type: "local" } },
      { type: "apply_patch" },
    ],
  },
  samples: [
    [/image_url$/, PNG],
    [/file_url$/, ADDRESS],
    [/file_data$/, DATA],
    [/^metadata$/, { a: "b" }],
    [/^service_tier$/, "flex"],
    [/^tool_choice\.tools$/, [{ type: "function", name: "x" }]],
  ],
  needs: [
    [/(function_call_output|tool_search_call|tool_search_output)\]$/, always({ call_id: "x" })],
    [/computer_call_output\]$/, always({ output: { type: "computer_screenshot", image_url: PNG } })],
    [/computer_screenshot\]$/, always({ image_url: PNG })],
    [/input_image\]$/, always({ image_url: PNG })],
    [/input_file\]$/, (field) => (field?.startsWith("file_") ? {} : { file_data: DATA })],
    [/tools\[tool_search\]$/, always({ execution: "client" })],
    [/^tool_choice\[custom\]$/, always({ name: "y" })],
  ],
  // A reference needs a response that is kept.
  own: ["store", "input.id", "input.type"],
  decode: (body) => decodeResponses(body),
  sent: sentNative,
};

/** The blocks that only a message of the model can have. */
const OF_MODEL = /^(thinking|redacted_thinking|tool_use|server_tool_use|web_search_tool_result)$/;

/** Gives a message the role that its blocks need. */
function withRoles(body: unknown): unknown {
  const { messages, ...rest } = body as { messages: { role: string; content: string | { type?: string }[] }[] };
  const isOfModel = (content: (typeof messages)[number]["content"]) =>
    Array.isArray(content) && content.some(({ type = "" }) => OF_MODEL.test(type));
  return {
    ...rest,
    messages: messages.map((message) => (isOfModel(message.content) ? { ...message, role: "assistant" } : message)),
  };
}

const messages: PublishedWire = {
  name: "Messages",
  source: versionOf("@anthropic-ai/sdk"),
  schema: () => schemaOf(TYPES, "Messages", TSCONFIG),
  base: {
    model: MODEL,
    max_tokens: 4_096,
    messages: [{ role: "user", content: "Go" }],
    tools: [{ name: "x", input_schema: FUNCTION }],
  },
  samples: [
    [/^messages$/, [{ role: "user", content: "Go" }]],
    [/source\.url$/, ADDRESS],
    [/source\.data$/, "AAAA"],
    [/budget_tokens$/, 1_024],
    [/^metadata.user_id$/, "someone"],
  ],
  needs: [],
  own: [],
  decode: (body) => decodeMessages(withRoles(body), {}),
  sent: sentNative,
};

/** Gives the contents the roles and the call that their parts need. */
function withCall(body: unknown): unknown {
  const asked = body as { contents: { parts?: { functionCall?: object; functionResponse?: object }[] }[] };
  const parts = asked.contents.flatMap((content) => content.parts ?? []);
  const call = { role: "model", parts: [{ functionCall: { name: "x" } }] };
  if (parts.some((part) => part.functionResponse !== undefined)) {
    return { ...asked, contents: [call, ...asked.contents] };
  }
  if (parts.every((part) => part.functionCall === undefined)) return asked;
  return { ...asked, contents: asked.contents.map((content) => ({ ...content, role: "model" })) };
}

const CONTENT = { role: "user", parts: [{ text: "Hello" }] };
const KINDS = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

const google: PublishedWire = {
  name: "Gemini",
  source: `\`@google/genai\` ${gemini().version}`,
  schema: () => gemini().schema,
  base: {
    contents: [{ role: "user", parts: [{ text: "Go" }] }],
    tools: [{ functionDeclarations: [{ name: "x" }] }],
  },
  samples: [
    [/^contents$/, [CONTENT]],
    [/^contents\.parts$/, CONTENT.parts],
    [/^systemInstruction$/, CONTENT],
    [/^tools$/, [{ functionDeclarations: [{ name: "y" }] }]],
    [/^toolConfig$/, { functionCallingConfig: { mode: "ANY" } }],
    [/functionCallingConfig$/, { mode: "ANY" }],
    [/allowedFunctionNames$/, ["x"]],
    [/\.mode$/, "ANY"],
    [/^generationConfig$/, { topK: 2 }],
    [/thinkingConfig$/, { thinkingLevel: "LOW" }],
    [/thinkingLevel$/, "LOW"],
    [/^contents\.role$/, "model"],
    [/role$/, "user"],
    [/functionDeclarations\.name$/, "z"],
    [/fileUri$/, ADDRESS],
    [/\.data$/, "AAAA"],
    [/mimeType$/, "image/png"],
    [/responseMimeType$/, "application/json"],
    [/responseModalities$/, ["IMAGE"]],
    [/candidateCount$/, 2],
    [/labels$/, { a: "b" }],
    [/googleSearch$/, {}],
    [/functionDeclarations$/, [{ name: "y" }]],
    [/functionCall$/, { name: "x", args: {} }],
    [/functionResponse$/, { name: "x", response: {} }],
    [/functionResponse\.name$/, "x"],
    [/functionResponse\.parts$/, [{ inlineData: { mimeType: "image/png", data: "AAAA" } }]],
    [/inlineData$/, { mimeType: "image/png", data: "AAAA" }],
    [/fileData$/, { fileUri: ADDRESS, mimeType: "image/png" }],
  ],
  needs: [
    [/^contents$/, (field) => (field === "parts" ? {} : { parts: [{ text: "Go" }] })],
    [/^systemInstruction$/, (field) => (field === "parts" ? {} : { parts: [{ text: "Go" }] })],
    [/^contents\.parts$/, (field) => (KINDS.includes(field ?? "") ? {} : { text: "x" })],
    [/functionDeclarations$/, always({ name: "x" })],
    [/functionCall$/, always({ name: "x" })],
    [/functionResponse$/, always({ name: "x" })],
    [/functionResponse\.parts$/, (field) => (KINDS.includes(field ?? "") ? {} : { fileData: { fileUri: ADDRESS } })],
    [/inlineData$/, always({ mimeType: "image/png", data: "AAAA" })],
    [/fileData$/, always({ fileUri: ADDRESS })],
    [/functionCallingConfig$/, (field) => (field === "mode" ? {} : { mode: "ANY" })],
    [/^generationConfig$/, (field) => (/Schema$/.test(field ?? "") ? { responseMimeType: "application/json" } : {})],
  ],
  own: [],
  decode: (body) => decodeGenerateContent(withCall(body), { model: MODEL, isStreamed: false, isEvents: false }),
  sent: sentNative,
};

export const WIRES: readonly PublishedWire[] = [chat, responses, messages, google];
