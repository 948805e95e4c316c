import { ANTHROPIC, type CodeReader, curlTo, GOOGLE, inAll, OPENAI } from "./examples.ts";
import type { CallBody, CallMessage, ContentPart } from "./snippets.ts";

/** The wires that the same request can be sent on, besides chat completions. */
export const WIRES = ["responses", "messages", "gemini"] as const;
export type Wire = (typeof WIRES)[number];

/** `max_tokens` where the wire requires one and the request has none. */
const MAX_TOKENS = 1024;

/** Returns code that sends a request on a wire, in each language. It is not streamed. */
export function codeOnWire(wire: Wire, reader: CodeReader, body: CallBody): Record<Language, string> {
  const { curl = "", typescript = "", python = "" } = CODE[wire](reader, body);
  return { curl, typescript, python };
}

export type Language = "curl" | "typescript" | "python";

const CODE: Record<Wire, (reader: CodeReader, body: CallBody) => Partial<Record<Language, string>>> = {
  responses: (reader, body) =>
    inAll(reader, {
      path: "/v1/responses",
      client: OPENAI,
      method: ["responses.create", "responses.create"],
      body: responsesBody(body),
      print: ["console.log(answer.output);", "print(answer.output)"],
    }),
  messages: (reader, body) =>
    inAll(reader, {
      path: "/v1/messages",
      client: ANTHROPIC,
      method: ["messages.create", "messages.create"],
      body: messagesBody(body),
      print: ["console.log(answer.content);", "print(answer.content)"],
      headers: ["anthropic-version: 2023-06-01"],
    }),
  gemini: (reader, body) => {
    const { contents, system, tools, config } = geminiParts(body);
    const all = { ...config, ...(system && { systemInstruction: system }), ...(tools && { tools }) };
    return {
      ...inAll(reader, {
        path: "",
        client: GOOGLE,
        method: ["models.generateContent", "models.generate_content"],
        body: { model: body.model, contents, ...(Object.keys(all).length > 0 && { config: all }) },
        print: ["console.log(answer.candidates);", "print(answer.candidates)"],
      }),
      curl: curlTo(reader, {
        path: `/v1beta/models/${body.model}:generateContent`,
        body: {
          contents,
          ...(system && { systemInstruction: { parts: [{ text: system }] } }),
          ...(tools && { tools }),
          ...(Object.keys(config).length > 0 && { generationConfig: config }),
        },
      }),
    };
  },
};

/** Returns the body of `POST /v1/responses`. */
export function responsesBody(body: CallBody): Record<string, unknown> {
  const { model, messages, instructions, temperature, max_tokens, tools, response_format } = body;
  const format = response_format && { type: "json_schema", ...response_format.json_schema };
  return {
    model,
    input: messages.flatMap(responsesItems),
    ...(instructions !== undefined && { instructions }),
    ...(temperature !== undefined && { temperature }),
    ...(max_tokens !== undefined && { max_output_tokens: max_tokens }),
    ...(tools && { tools: tools.map(({ function: one }) => ({ type: "function", ...one })) }),
    ...(format && { text: { format } }),
  };
}

function responsesItems({ role, content, tool_calls = [], tool_call_id }: CallMessage): object[] {
  if (role === "tool") return [{ type: "function_call_output", call_id: tool_call_id, output: content }];
  const calls = tool_calls.map(({ id, function: call }) => ({ type: "function_call", call_id: id, ...call }));
  if (content === "") return calls;
  return [{ role, content: typeof content === "string" ? content : content.map(responsesPart) }, ...calls];
}

function responsesPart(part: ContentPart): object {
  switch (part.type) {
    case "text":
      return { type: "input_text", text: part.text };
    case "image_url":
      return { type: "input_image", image_url: part.image_url.url };
    case "file":
      return { type: "input_file", ...part.file };
  }
}

/** Returns the body of `POST /v1/messages`. */
export function messagesBody(body: CallBody): Record<string, unknown> {
  const { model, messages, instructions, temperature, max_tokens = MAX_TOKENS, tools, response_format } = body;
  const functions = tools?.map(({ function: { name, description, parameters = EMPTY_SCHEMA } }) => ({
    name,
    ...(description !== undefined && { description }),
    input_schema: parameters,
  }));
  const format = response_format && { type: "json_schema", schema: response_format.json_schema.schema };
  return {
    model,
    max_tokens,
    messages: messages.map(messageOf),
    ...(instructions !== undefined && { system: instructions }),
    ...(temperature !== undefined && { temperature }),
    ...(functions && { tools: functions }),
    ...(format && { output_config: { format } }),
  };
}

const EMPTY_SCHEMA = { type: "object", properties: {} };

function messageOf({ role, content, tool_calls, tool_call_id }: CallMessage): object {
  if (role === "tool") return { role: "user", content: [{ type: "tool_result", tool_use_id: tool_call_id, content }] };
  if (typeof content === "string" && tool_calls === undefined) return { role, content };
  const parts = typeof content === "string" ? textParts(content) : content;
  const calls = (tool_calls ?? []).map(({ id, function: { name, arguments: text } }) => {
    return { type: "tool_use", id, name, input: argumentsIn(text) };
  });
  return { role, content: [...parts.map(messagesPart), ...calls] };
}

const textParts = (text: string): ContentPart[] => (text === "" ? [] : [{ type: "text", text }]);

function messagesPart(part: ContentPart): object {
  if (part.type === "text") return part;
  const { type, data } = dataOf(part);
  const source = { type: "base64", media_type: type, data };
  return { type: part.type === "image_url" ? "image" : "document", source };
}

/** Returns the type and the base64 of a `data:` URL. */
function dataOf(part: Exclude<ContentPart, { type: "text" }>): { type: string; data: string } {
  const url = part.type === "image_url" ? part.image_url.url : part.file.file_data;
  const [, type = "", data = ""] = /^data:([^;,]*);base64,(.*)$/s.exec(url) ?? [];
  return { type, data };
}

function argumentsIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** Returns the parts of a request to `generateContent`. */
export function geminiParts({ messages, instructions, temperature, max_tokens, tools, response_format }: CallBody) {
  const functions = tools?.map(({ function: { parameters, ...one } }) => ({
    ...one,
    ...(parameters && { parametersJsonSchema: parameters }),
  }));
  const schema = response_format?.json_schema.schema;
  return {
    contents: messages.map((message) => geminiContent(message, messages)),
    ...(instructions !== undefined && { system: instructions }),
    ...(functions && { tools: [{ functionDeclarations: functions }] }),
    config: {
      ...(temperature !== undefined && { temperature }),
      ...(max_tokens !== undefined && { maxOutputTokens: max_tokens }),
      ...(schema && { responseMimeType: "application/json", responseJsonSchema: schema }),
    },
  };
}

function geminiContent({ role, content, tool_calls = [], tool_call_id }: CallMessage, all: readonly CallMessage[]) {
  if (role === "tool") {
    const calls = all.flatMap((message) => message.tool_calls ?? []);
    const name = calls.find(({ id }) => id === tool_call_id)?.function.name ?? "";
    return { role: "user", parts: [{ functionResponse: { id: tool_call_id, name, response: { result: content } } }] };
  }
  const parts = typeof content === "string" ? textParts(content) : content;
  const calls = tool_calls.map(({ id, function: { name, arguments: text } }) => {
    return { functionCall: { id, name, args: argumentsIn(text) } };
  });
  return { role: role === "assistant" ? "model" : role, parts: [...parts.map(geminiPart), ...calls] };
}

function geminiPart(part: ContentPart): object {
  if (part.type === "text") return { text: part.text };
  const { type, data } = dataOf(part);
  return { inlineData: { mimeType: type, data } };
}
