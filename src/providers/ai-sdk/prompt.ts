import type { LanguageModelV4FilePart, LanguageModelV4Prompt, LanguageModelV4ToolResultPart } from "@ai-sdk/provider";
import type { ContentPart, RequestMessage, ToolCall } from "../../api/chat/request.ts";
import { isObject } from "../openai/json.ts";
import { type ConvertedPrompt, UpstreamError } from "../provider.ts";
import { readExtraContent } from "./extra-content.ts";
import type { Wire } from "./wire.ts";

type Message<Role> = Extract<LanguageModelV4Prompt[number], { role: Role }>;
type AssistantPart = Message<"assistant">["content"][number];

/** A conversation as the packages take it, and the fields that this wire does not have. */
export interface AiSdkPrompt extends ConvertedPrompt {
  prompt: LanguageModelV4Prompt;
  ignored: Set<string>;
}

/**
 * Converts messages of OpenAI's shape to a prompt. `converted` is the conversation of the last messages, where they are
 * converted already. Throws UpstreamError where the wire cannot express a message.
 */
export function toPrompt(wire: Wire, messages: readonly RequestMessage[], converted?: AiSdkPrompt): AiSdkPrompt {
  const messageCount = messages.length;
  if (converted?.messageCount === messageCount) return converted;
  const reader = new ConversationReader(wire);
  const first = messages.slice(0, messageCount - (converted?.messageCount ?? 0));
  for (const [index, message] of first.entries()) reader.read(message, `messages[${index}]`);
  const { prompt, ignored } = reader.conversation();
  if (converted === undefined) return { prompt, ignored, messageCount };
  return {
    prompt: [...prompt, ...converted.prompt],
    ignored: new Set([...ignored, ...converted.ignored]),
    messageCount,
  };
}

class ConversationReader {
  readonly #wire: Wire;
  readonly #system: Message<"system">[] = [];
  readonly #rest: LanguageModelV4Prompt = [];
  readonly #ignored = new Set<string>();
  readonly #toolNames = new Map<string, string>();

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  conversation(): Pick<AiSdkPrompt, "prompt" | "ignored"> {
    return { prompt: [...this.#system, ...this.#rest], ignored: this.#ignored };
  }

  read(message: RequestMessage, at: string): void {
    if (message.name !== undefined && message.role !== "tool") this.#ignored.add("messages.name");
    switch (message.role) {
      case "system":
      case "developer": {
        const target = this.#wire.prompt.isSystemFirst ? this.#system : this.#rest;
        const content = textOf(message.content, at);
        if (content !== "") target.push({ role: "system", content });
        break;
      }
      case "user":
        this.#rest.push({ role: "user", content: this.#userParts(message.content, at) });
        break;
      case "assistant": {
        const content = this.#assistantParts(message, at);
        if (content.length > 0) this.#rest.push({ role: "assistant", content });
        break;
      }
      case "tool":
        this.#addResult(message, at);
    }
  }

  #userParts(content: RequestMessage["content"], at: string): Message<"user">["content"] {
    if (typeof content === "string") return [{ type: "text", text: content }];
    return (content ?? []).map((part, index) => {
      if (part.type === "text") return { type: "text", text: part.text };
      const place = `${at}.content[${index}]`;
      if (part.type === "image_url") return this.#image(part, place);
      throw refusal(`${place}.type`, "this model takes text and images");
    });
  }

  #image({ image_url: { url, detail } }: Extract<ContentPart, { type: "image_url" }>, at: string) {
    const file = toFile(url, at);
    if (file.data.type === "url" && !this.#wire.prompt.takesImageAddresses) {
      throw refusal(at, "this model takes images by their bytes alone, as data:image/…;base64,…");
    }
    if (detail === undefined || detail === "auto") return file;
    const { imageDetail } = this.#wire.prompt;
    if (imageDetail !== undefined) return { ...file, providerOptions: imageDetail(detail) };
    this.#ignored.add("image_url.detail");
    return file;
  }

  #assistantParts(message: RequestMessage, at: string): AssistantPart[] {
    const { prompt: rules } = this.#wire;
    const { reasoning_content: reasoning, refusal, tool_calls: calls = [] } = message;
    const text = `${message.content === undefined ? "" : textOf(message.content, at)}${refusal ?? ""}`;
    const parts = calls.flatMap((call, index) => [
      ...this.#signedReasoning(call),
      this.#call(call, `${at}.tool_calls[${index}]`),
    ]);
    // The request does not give the position of the text. It is usually between the first reasoning and the first call.
    const thought = parts.slice(
      0,
      Math.max(
        0,
        parts.findIndex(({ type }) => type === "tool-call"),
      ),
    );
    const said: AssistantPart[] = [];
    if (rules.takesPlainReasoning && reasoning) said.push({ type: "reasoning", text: reasoning });
    if (text !== "" && calls.length > 0 && !rules.takesTextWithCalls) this.#ignored.add("messages.content");
    else if (text !== "") said.push({ type: "text", text });
    return [...thought, ...said, ...parts.slice(thought.length)];
  }

  /** Returns the signed reasoning before a call. Providers refuse it at any other place. */
  #signedReasoning({ extra_content: extra }: ToolCall): AssistantPart[] {
    const { metadataKey, reasoningFields } = this.#wire;
    return readExtraContent(extra, metadataKey, reasoningFields).reasoning.map(({ text, fields }) => ({
      type: "reasoning",
      text,
      providerOptions: { [metadataKey]: fields },
    }));
  }

  #call({ id, function: { name, arguments: given }, extra_content: extra }: ToolCall, at: string): AssistantPart {
    const { metadataKey } = this.#wire;
    this.#toolNames.set(id, name);
    const { signature } = readExtraContent(extra, metadataKey, []);
    return {
      type: "tool-call",
      toolCallId: id,
      toolName: name,
      input: toInput(given, at),
      ...(signature !== undefined && { providerOptions: { [metadataKey]: { thoughtSignature: signature } } }),
    };
  }

  /** Results that follow one another answer one turn: most wires want them together. */
  #addResult({ tool_call_id: id = "", content }: RequestMessage, at: string): void {
    const toolName = this.#toolNames.get(id);
    if (toolName === undefined) throw refusal(`${at}.tool_call_id`, "no tool call before it has this id");
    const part: LanguageModelV4ToolResultPart = {
      type: "tool-result",
      toolCallId: id,
      toolName,
      output: this.#output(content, at),
    };
    const last = this.#rest.at(-1);
    if (last?.role === "tool") last.content.push(part);
    else this.#rest.push({ role: "tool", content: [part] });
  }

  #output(content: RequestMessage["content"], at: string): LanguageModelV4ToolResultPart["output"] {
    const hasImage = Array.isArray(content) && content.some(({ type }) => type === "image_url");
    if (!hasImage) return { type: "text", value: textOf(content, at) };
    if (!this.#wire.prompt.takesToolImages) throw refusal(at, "this model takes no images in a tool's result");
    const value = this.#userParts(content, at);
    const index = value.findIndex((part) => part.type === "file" && part.data.type === "url");
    // Some packages would fetch the address themselves.
    if (index >= 0)
      throw refusal(`${at}.content[${index}]`, "images in a tool's result are taken by their bytes alone");
    return { type: "content", value };
  }
}

function textOf(content: RequestMessage["content"], at: string): string {
  if (!Array.isArray(content)) return content ?? "";
  return content
    .map((part) => {
      if (part.type === "text") return part.text;
      throw refusal(at, "images are taken in messages of the user alone");
    })
    .join("");
}

function toInput(given: string, at: string): unknown {
  if (given.trim() === "") return {};
  let input: unknown;
  try {
    input = JSON.parse(given);
  } catch {
    input = undefined;
  }
  if (isObject(input)) return input;
  throw refusal(`${at}.function.arguments`, "these are not the JSON object that this model needs");
}

/** Media types by file extension, for wires that require the media type of an image address. The image is not fetched. */
const TYPES_OF_ENDINGS: Readonly<Record<string, string>> = {
  gif: "image/gif",
  heic: "image/heic",
  heif: "image/heif",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  png: "image/png",
  webp: "image/webp",
};

function toFile(address: string, at: string): LanguageModelV4FilePart {
  const inline = /^data:(image\/[\w.+-]{1,60});base64,([A-Za-z0-9+/=\s]+)$/.exec(address);
  if (inline !== null) {
    const [, mediaType = "", data = ""] = inline;
    return { type: "file", mediaType, data: { type: "data", data: data.replaceAll(/\s/g, "") } };
  }
  const url = URL.parse(address);
  if (url === null || url.protocol !== "https:") {
    throw refusal(`${at}.image_url.url`, "expected an https address, or data:image/…;base64,…");
  }
  const ending = /\.(\w{3,4})$/.exec(url.pathname.toLowerCase())?.[1] ?? "";
  return { type: "file", mediaType: TYPES_OF_ENDINGS[ending] ?? "image/jpeg", data: { type: "url", url } };
}

function refusal(at: string, why: string): UpstreamError {
  const message = `Invalid '${at}': ${why}.`;
  return new UpstreamError("unsupported", "The request cannot be told on this wire", {
    publicReason: message,
    param: at,
  });
}
