import { choiceWithoutTools, effortOfBudget } from "../chat/decode.ts";
import { checkParts } from "../chat/image-address.ts";
import { type ChatCompletionRequest, MESSAGES_MAX, TOOLS_MAX, type Tool } from "../chat/request.ts";
import { detailsOf, isObject, type JsonObject, objectsIn } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import type { PlacedMessages } from "../placed-messages.ts";
import { invalid, refuseIf, type ValidationIssue } from "../validation.ts";
import type { DecodedCompletion, NativeRequest } from "../wire.ts";
import { ContentMessages } from "./contents.ts";
import { geminiEvents, toGenerated } from "./encode.ts";
import { type GeminiContent, type GeminiPart, GenerateContentRequest, withCamelCase, withLists } from "./request.ts";
import { isForeign } from "./signatures.ts";

type Config = NonNullable<GenerateContentRequest["generationConfig"]>;

export interface GeminiCall {
  model: string;
  isStreamed: boolean;
  /** True for server-sent events, false for one list in JSON. */
  isEvents: boolean;
}

const SETTINGS = {
  max_completion_tokens: "maxOutputTokens",
  temperature: "temperature",
  top_p: "topP",
  top_k: "topK",
  seed: "seed",
  stop: "stopSequences",
  presence_penalty: "presencePenalty",
  frequency_penalty: "frequencyPenalty",
} as const;

/** Fields that would change the answer, or make tokens that no hold covers. The schema of a result is only a hint. */
const REFUSED =
  /^(?:cachedContent|continuationToken|tools\.(?!functionDeclarations\.response(?:JsonSchema)?$).+|contents\.parts\.(?:executableCode|codeExecutionResult|toolCall|toolResponse)|generationConfig\.(?:responseLogprobs|logprobs|responseFormat|speechConfig|imageConfig|translationConfig|audio\w+))$/;

const readRequest = compileReader(GenerateContentRequest, { silent: ["model"], refusedNames: REFUSED });

/** Reads the body of `generateContent` or `streamGenerateContent`. Throws InvalidRequestError. */
export function decodeGenerateContent(body: unknown, call: GeminiCall): DecodedCompletion {
  const named = isObject(body) ? withLists(withCamelCase(body) as JsonObject) : body;
  refuseIf(excessIssue(detailsOf(named)));
  const { read: request, unknown } = readRequest(named);
  refuseIf(formatIssue(request) ?? choiceIssue(request) ?? instructionIssue(request));
  const contents = new ContentMessages(request.contents);
  checkParts(contents.messages, (param) => paramOf(param, request, contents));
  return {
    kind: "completion",
    request: internalRequest(request, contents, call),
    output: {
      param: "generationConfig.maxOutputTokens",
      tokens: request.generationConfig?.maxOutputTokens,
      isLimitedBySetting: false,
    },
    native: nativeOf(request),
    ignored: unknown.names(),
    paramOf: (param) => paramOf(param, request, contents),
    events: (head, add) => geminiEvents(head, add, call.isEvents),
    document: toGenerated,
  };
}

/** The Gemini API has no labels: these are for this service. */
function nativeOf({ labels: _labels, ...request }: GenerateContentRequest): NativeRequest {
  const search = request.tools?.findIndex(({ googleSearch }) => googleSearch !== undefined) ?? -1;
  return {
    wire: "generateContent",
    body: { ...request, contents: request.contents.map(withoutForeign) },
    headers: {},
    hints: request.safetySettings === undefined ? [] : ["safetySettings"],
    search: search < 0 ? undefined : { param: `tools[${search}].googleSearch` },
    // Elsewhere the budget of thinking becomes an effort.
    prefersNative: request.generationConfig?.thinkingConfig?.thinkingBudget !== undefined,
  };
}

/** Returns a content without the thoughts and signatures of other models, which Gemini would refuse. */
function withoutForeign({ parts, ...content }: GeminiContent): GeminiContent {
  const kept = parts.flatMap((part): GeminiPart[] => {
    const { thoughtSignature: signature, ...others } = part;
    if (signature === undefined || !isForeign(signature)) return [part];
    return others.thought === true ? [] : [others];
  });
  return { ...content, parts: kept.length > 0 ? kept : [{ text: "" }] };
}

/** Reads the body of `countTokens`: contents alone, or a whole request. */
export function decodeGeminiCount(body: unknown, model: string): DecodedCompletion {
  const named = isObject(body) ? (withCamelCase(body) as JsonObject) : {};
  const { generateContentRequest: whole } = named;
  return decodeGenerateContent(isObject(whole) ? whole : body, { model, isStreamed: false, isEvents: false });
}

function excessIssue({ contents, tools }: JsonObject): ValidationIssue | undefined {
  const parts = objectsIn(contents).flatMap(({ parts }) => [contents, ...(Array.isArray(parts) ? parts : [])]);
  const declared = objectsIn(tools).flatMap((tool) => objectsIn(tool.functionDeclarations));
  const excess = (param: string, limit: number, count: number): ValidationIssue => {
    const message = `Invalid '${param}': expected at most ${limit} in all, but got ${count}.`;
    return { code: "body_too_large", param, message };
  };
  if (parts.length > MESSAGES_MAX) return excess("contents", MESSAGES_MAX, parts.length);
  return declared.length > TOOLS_MAX ? excess("tools", TOOLS_MAX, declared.length) : undefined;
}

function formatIssue({ generationConfig: config = {} }: GenerateContentRequest): ValidationIssue | undefined {
  const { responseSchema, responseJsonSchema, responseMimeType } = config;
  if (responseSchema !== undefined && responseJsonSchema !== undefined) {
    return invalid(
      "generationConfig.responseJsonSchema",
      "only one of responseSchema and responseJsonSchema is allowed",
    );
  }
  if ((responseSchema ?? responseJsonSchema) === undefined || responseMimeType === "application/json") return undefined;
  return invalid("generationConfig.responseMimeType", "a schema needs 'application/json'");
}

function choiceIssue(request: GenerateContentRequest): ValidationIssue | undefined {
  const { mode, allowedFunctionNames: allowed = [] } = request.toolConfig?.functionCallingConfig ?? {};
  if (mode !== "ANY") return undefined;
  const declared = new Set(declarations(request).map(({ one }) => one.name));
  if (declared.size === 0) return { ...choiceWithoutTools(), param: "toolConfig.functionCallingConfig.mode" };
  const index = allowed.findIndex((name) => !declared.has(name));
  if (index < 0) return undefined;
  const param = `toolConfig.functionCallingConfig.allowedFunctionNames[${index}]`;
  return invalid(param, "'tools' has no function with this name");
}

function instructionIssue({ systemInstruction }: GenerateContentRequest): ValidationIssue | undefined {
  const index = systemInstruction?.parts.findIndex(({ text }) => text === undefined) ?? -1;
  return index < 0 ? undefined : invalid(`systemInstruction.parts[${index}]`, "expected a text");
}

function declarations({ tools = [] }: GenerateContentRequest) {
  return tools.flatMap(({ functionDeclarations = [] }, tool) =>
    functionDeclarations.map((one, index) => ({ one, path: `tools[${tool}].functionDeclarations[${index}]` })),
  );
}

function internalRequest(
  request: GenerateContentRequest,
  { messages }: PlacedMessages,
  { model, isStreamed }: GeminiCall,
): ChatCompletionRequest {
  const { systemInstruction, labels: metadata, generationConfig: config = {} } = request;
  const named = Object.entries(SETTINGS).map(([name, own]) => [name, config[own]] as const);
  const settings = named.filter(([, value]) => value !== undefined && !(Array.isArray(value) && value.length === 0));
  return {
    model,
    messages,
    ...(isStreamed && { stream: true }),
    ...(systemInstruction && { instructions: systemInstruction.parts.map(({ text = "" }) => text).join("\n") }),
    ...(Object.fromEntries(settings) as Pick<ChatCompletionRequest, keyof typeof SETTINGS>),
    reasoning_effort: effortOf(config),
    response_format: formatOf(config),
    metadata,
    ...toolsOf(request),
    ...(request.tools?.some(({ googleSearch }) => googleSearch) && { web_search_options: {} }),
  };
}

function toolsOf(request: GenerateContentRequest): Pick<ChatCompletionRequest, "tools" | "tool_choice"> {
  const { mode, allowedFunctionNames: allowed = [] } = request.toolConfig?.functionCallingConfig ?? {};
  const tools = declarations(request).map(({ one }): Tool => {
    const { name, description, parameters, parametersJsonSchema } = one;
    const schema = parametersJsonSchema ?? (parameters && toJsonSchema(parameters));
    return { type: "function", function: { name, description: description || undefined, parameters: schema } };
  });
  if (tools.length === 0) return {};
  if (mode === "NONE") return { tools, tool_choice: "none" };
  if (mode !== "ANY") return { tools };
  const [only, ...others] = allowed;
  if (only === undefined) return { tools, tool_choice: "required" };
  if (others.length === 0) return { tools, tool_choice: { type: "function", function: { name: only } } };
  return { tools: tools.filter(({ function: { name } }) => allowed.includes(name)), tool_choice: "required" };
}

function formatOf(config: Config): ChatCompletionRequest["response_format"] {
  const { responseSchema, responseJsonSchema } = config;
  const schema = responseJsonSchema ?? (responseSchema && toJsonSchema(responseSchema));
  if (schema !== undefined) return { type: "json_schema", json_schema: { name: "output", schema } };
  return config.responseMimeType === "application/json" ? { type: "json_object" } : undefined;
}

/** A budget becomes an effort, because most models take no number of tokens. */
function effortOf({ thinkingConfig: thinking = {} }: Config): ChatCompletionRequest["reasoning_effort"] {
  const { thinkingLevel: level, thinkingBudget: budget, includeThoughts } = thinking;
  if (level !== undefined && level !== "THINKING_LEVEL_UNSPECIFIED") {
    return level.toLowerCase() as "minimal" | "low" | "medium" | "high";
  }
  if (budget === 0) return "none";
  if (budget === undefined || budget < 0) return includeThoughts === true ? "medium" : undefined;
  return effortOfBudget(budget);
}

/** Keywords of counts, which the wire also writes as texts. */
const COUNTS = ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

function toJsonSchema(schema: JsonObject): Record<string, unknown> {
  const { type, nullable, propertyOrdering: _order, properties, items, anyOf, enum: values, ...rest } = schema;
  const isNullable = nullable === true;
  const converted: Record<string, unknown> = { ...rest };
  for (const count of COUNTS) if (typeof rest[count] === "string") converted[count] = Number(rest[count]);
  if (typeof type === "string" && type !== "TYPE_UNSPECIFIED") {
    converted.type = isNullable ? [type.toLowerCase(), "null"] : type.toLowerCase();
  }
  if (Array.isArray(values)) converted.enum = isNullable ? [...values, null] : values;
  if (isObject(items)) converted.items = toJsonSchema(items);
  if (Array.isArray(anyOf)) {
    converted.anyOf = [...anyOf.filter(isObject).map(toJsonSchema), ...(isNullable ? [{ type: "null" }] : [])];
  }
  if (isObject(properties)) {
    const entries = Object.entries(properties).map(([name, one]) => [name, isObject(one) ? toJsonSchema(one) : {}]);
    converted.properties = Object.fromEntries(entries);
  }
  return converted;
}

const PARAMS: Record<string, string> = {
  messages: "contents",
  instructions: "systemInstruction",
  ...Object.fromEntries(Object.entries(SETTINGS).map(([name, own]) => [name, `generationConfig.${own}`])),
  max_tokens: "generationConfig.maxOutputTokens",
  response_format: "generationConfig.responseSchema",
  "response_format.type": "generationConfig.responseMimeType",
  reasoning_effort: "generationConfig.thinkingConfig",
  tool_choice: "toolConfig.functionCallingConfig",
  metadata: "labels",
  web_search_options: "tools.googleSearch",
};
const TOOL_PARAM = /^tools\[(\d+)\](?:\.function)?(.*)$/;

function paramOf(param: string, request: GenerateContentRequest, contents: PlacedMessages): string {
  const place = contents.find(param);
  if (place !== undefined) return place.path;
  const [, tool, rest = ""] = TOOL_PARAM.exec(param) ?? [];
  const declared = tool === undefined ? undefined : declarations(request)[Number(tool)];
  return declared === undefined ? (PARAMS[param] ?? param) : `${declared.path}${rest}`;
}
