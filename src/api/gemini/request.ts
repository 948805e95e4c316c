import { type Static, Type } from "typebox";
import { Metadata } from "../chat/request.ts";
import { isObject } from "../json.ts";
import { Json, OptionalKeys, OptionalText, PartialObject } from "../schema.ts";

const Blob = Type.Object({ mimeType: Type.String({ minLength: 1 }), data: Type.String({ description: "Base64." }) });
const FileData = Type.Object({
  mimeType: OptionalText,
  fileUri: Type.String({ description: "A public https address. Files of Google's Files API are refused." }),
});
const FunctionCall = Type.Object({ id: OptionalText, name: Type.String({ minLength: 1 }), args: Type.Optional(Json) });
/** `response` refers to a medium by its `displayName`. */
const Medium = PartialObject({
  inlineData: Type.Object({ ...Blob.properties, displayName: OptionalText }),
  fileData: Type.Object({ ...FileData.properties, displayName: OptionalText }),
});
const FunctionResponse = Type.Object({
  id: OptionalText,
  name: Type.String(),
  ...OptionalKeys({ response: Json, parts: Type.Array(Medium) }),
});
/** Has one kind of data; a text may be empty. */
const Part = PartialObject({
  text: Type.String(),
  thought: Type.Boolean(),
  thoughtSignature: Type.String({ description: "Send it back as it was received." }),
  inlineData: Blob,
  fileData: FileData,
  functionCall: FunctionCall,
  functionResponse: FunctionResponse,
});
const Content = Type.Object({ role: Type.Optional(Type.Enum(["user", "model", "function"])), parts: Type.Array(Part) });

const FunctionDeclaration = Type.Object({
  name: Type.String({ minLength: 1 }),
  description: OptionalText,
  parameters: Type.Optional(Json),
  parametersJsonSchema: Type.Optional(Json),
});
const ToolConfig = PartialObject({
  functionCallingConfig: PartialObject({
    mode: Type.Enum(["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"]),
    allowedFunctionNames: Type.Array(Type.String()),
  }),
});
const ThinkingConfig = PartialObject({
  includeThoughts: Type.Boolean(),
  thinkingBudget: Type.Integer({ minimum: -1 }),
  thinkingLevel: Type.Enum([
    "THINKING_LEVEL_UNSPECIFIED",
    "MINIMAL",
    "LOW",
    "MEDIUM",
    "HIGH",
    "minimal",
    "low",
    "medium",
    "high",
  ]),
});
const GenerationConfig = PartialObject({
  maxOutputTokens: Type.Integer({ minimum: 1 }),
  temperature: Type.Number({ minimum: 0, maximum: 2 }),
  topP: Type.Number({ minimum: 0, maximum: 1 }),
  topK: Type.Integer({ minimum: 0 }),
  stopSequences: Type.Array(Type.String(), { maxItems: 5 }),
  seed: Type.Integer(),
  presencePenalty: Type.Number({ minimum: -2, maximum: 2 }),
  frequencyPenalty: Type.Number({ minimum: -2, maximum: 2 }),
  candidateCount: Type.Literal(1),
  responseMimeType: Type.Enum(["text/plain", "application/json"]),
  responseSchema: Json,
  responseJsonSchema: Json,
  responseModalities: Type.Array(Type.Enum(["TEXT", "text"])),
  thinkingConfig: ThinkingConfig,
});

/** Body of `generateContent` and `streamGenerateContent`. `null` counts as absent, names in snake case as those in camel case. */
export const GenerateContentRequest = Type.Object({
  contents: Type.Array(Content, { minItems: 1 }),
  ...OptionalKeys({
    // Google ignores the role, and its older packages state `system`.
    systemInstruction: Type.Object({ role: OptionalText, parts: Type.Array(Part) }),
    tools: Type.Array(
      PartialObject({ functionDeclarations: Type.Array(FunctionDeclaration), googleSearch: Type.Object({}) }),
    ),
    toolConfig: ToolConfig,
    safetySettings: Type.Array(PartialObject({ category: Type.String(), threshold: Type.String() })),
    generationConfig: GenerationConfig,
    labels: Metadata,
  }),
});

export type GenerateContentRequest = Static<typeof GenerateContentRequest>;
export type GeminiContent = Static<typeof Content>;
export type GeminiPart = Static<typeof Part>;

/** Fields that contain data of the client, with names of its own. */
const DATA = new Set(["args", "response", "parametersJsonSchema", "responseJsonSchema", "properties", "labels"]);

/** Returns a body with the names of the wire: its JSON has them in camel case or in snake case. */
export function withCamelCase(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withCamelCase);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => {
      const camel = name.replaceAll(/_([a-z])/g, (_match, letter: string) => letter.toUpperCase());
      return [camel, DATA.has(camel) ? inner : withCamelCase(inner)];
    }),
  );
}

/** Returns a body with the lists that the wire also takes as one value. */
export function withLists(body: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { contents, systemInstruction: system, tools } = body;
  const content = (value: unknown) => {
    if (typeof value === "string") return { parts: [{ text: value }] };
    return isObject(value) && isObject(value.parts) ? { ...value, parts: [value.parts] } : value;
  };
  const list = (value: unknown) => (Array.isArray(value) || value === undefined || value === null ? value : [value]);
  const all = list(contents);
  return {
    ...body,
    contents: Array.isArray(all) ? all.map(content) : all,
    ...(system !== undefined && { systemInstruction: content(system) }),
    ...(tools !== undefined && { tools: list(tools) }),
  };
}
