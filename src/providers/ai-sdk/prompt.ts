import type {
  LanguageModelV4FilePart,
  LanguageModelV4Prompt,
  LanguageModelV4ToolResultPart,
  SharedV4ProviderOptions,
} from "@ai-sdk/provider";
import type { ContentPart, ReasoningDetail, RequestMessage, ToolCall } from "../../api/chat/request.ts";
import { TEXT_SIGNATURE_ID } from "../../api/gemini/signatures.ts";
import { argumentsObject, textOf } from "../../api/json.ts";
import { isMedium, MOVED_MEDIA, markOf } from "../fields.ts";
import { type UpstreamRequest, unsupportedField } from "../provider.ts";
import { fieldsOfDetail, isCallSignature, readExtraContent } from "./reasoning.ts";
import type { PromptRules, Wire } from "./wire.ts";

type Message<Role> = Extract<LanguageModelV4Prompt[number], { role: Role }>;
type AssistantPart = Message<"assistant">["content"][number];

/** A conversation in the form that the packages take. */
export class AiSdkPrompt {
  readonly prompt: LanguageModelV4Prompt;
  /** Names of the fields that this wire does not support. */
  readonly ignored = new Set<string>();
  readonly #wire: Wire;
  readonly #model: string;
  readonly #system: Message<"system">[] = [];
  readonly #messages: LanguageModelV4Prompt = [];
  readonly #toolNames = new Map<string, string>();
  /** Media of tool results that wait for the message of the user which gets them. */
  #moved: Message<"user">["content"] = [];

  /** Converts instructions and messages. Throws UpstreamError `unsupported` for what the wire lacks. */
  constructor(wire: Wire, request: Pick<UpstreamRequest, "instructions" | "messages" | "model">) {
    this.#wire = wire;
    this.#model = request.model;
    const { instructions, messages } = request;
    if (instructions !== undefined) this.#read({ role: "system", content: instructions }, "instructions");
    for (const [index, message] of messages.entries()) this.#read(message, `messages[${index}]`);
    this.#addMoved();
    this.prompt = [...this.#system, ...this.#messages];
  }

  #read(message: RequestMessage, at: string): void {
    if (message.name !== undefined && message.role !== "tool") this.ignored.add("messages.name");
    if (message.role !== "tool") this.#addMoved();
    switch (message.role) {
      case "system":
      case "developer": {
        const target = this.#wire.prompt.isSystemFirst ? this.#system : this.#messages;
        const content = contentText(message.content, at);
        if (content !== "") target.push({ role: "system", content, ...this.#mark(message.content) });
        break;
      }
      case "user":
        this.#messages.push({ role: "user", content: this.#userParts(message.content, at) });
        break;
      case "assistant": {
        if (message.audio !== undefined) this.ignored.add("messages.audio");
        const content = this.#assistantParts(message, at);
        if (content.length > 0) this.#messages.push({ role: "assistant", content });
        break;
      }
      case "tool":
        this.#addResult(message, at);
    }
  }

  #userParts(content: RequestMessage["content"], at: string): Message<"user">["content"] {
    if (typeof content === "string") return [{ type: "text", text: content }];
    return (content ?? []).map((part, index) => {
      if (part.type === "text") return { type: "text", text: part.text, ...this.#mark([part]) };
      const place = `${at}.content[${index}]`;
      if (part.type === "image_url") return this.#withMark(this.#image(part, place), part);
      if (part.type === "refusal")
        throw unsupportedField(`${place}.type`, "a refusal belongs to an assistant's message");
      return this.#withMark(toMedia(part, place, this.#wire.prompt), part);
    });
  }

  #withMark(file: LanguageModelV4FilePart, part: ContentPart): LanguageModelV4FilePart {
    const providerOptions = { ...file.providerOptions, ...this.#mark([part]).providerOptions };
    return Object.keys(providerOptions).length === 0 ? file : { ...file, providerOptions };
  }

  #mark(content: RequestMessage["content"]): { providerOptions?: SharedV4ProviderOptions } {
    if (!Array.isArray(content)) return {};
    const control = content.map(markOf).findLast((mark) => mark !== undefined);
    const mark = control === undefined ? undefined : this.#wire.prompt.cacheMark?.(control, this.#model);
    return mark === undefined ? {} : { providerOptions: mark };
  }

  #image({ image_url: { url, detail } }: Extract<ContentPart, { type: "image_url" }>, at: string) {
    const file = fromAddress(url, JPEG, `${at}.image_url.url`);
    if (file.data.type === "url" && this.#wire.prompt.refusesImageAddresses) {
      throw unsupportedField(at, "this model supports images only as data:image/…;base64,…");
    }
    if (detail === undefined || detail === "auto") return file;
    const { imageDetail } = this.#wire.prompt;
    if (imageDetail !== undefined) return { ...file, providerOptions: imageDetail(detail) };
    this.ignored.add("image_url.detail");
    return file;
  }

  #assistantParts(message: RequestMessage, at: string): AssistantPart[] {
    const { prompt: rules } = this.#wire;
    const { reasoning_content: reasoning, refusal, tool_calls: calls = [] } = message;
    const text = `${message.content === undefined ? "" : contentText(message.content, at)}${refusal ?? ""}`;
    const parts: AssistantPart[] = calls.flatMap((call) => [
      // Providers refuse signed reasoning at any other place than before its call.
      ...this.#reasoningParts(readExtraContent(call.extra_content).details),
      this.#call(call, message),
    ]);
    // The position before each call is known only from the call itself.
    if (!parts.some(({ type }) => type === "reasoning")) parts.unshift(...this.#reasoningOf(message));
    // The request does not give the position of the text. It is usually between the first reasoning and the first call.
    const firstCall = parts.findIndex(({ type }) => type === "tool-call");
    const thought = parts.slice(0, firstCall < 0 ? parts.length : firstCall);
    const content: AssistantPart[] = [];
    if (rules.takesPlainReasoning && reasoning) content.push({ type: "reasoning", text: reasoning });
    if (text !== "" && calls.length > 0 && rules.dropsTextWithCalls) this.ignored.add("messages.content");
    else if (text !== "") content.push({ type: "text", text, ...this.#textOptions(message) });
    return [...thought, ...content, ...parts.slice(thought.length)];
  }

  #textOptions({ content, reasoning_details: details = [] }: RequestMessage): {
    providerOptions?: SharedV4ProviderOptions;
  } {
    const signature = this.#signatureOf(TEXT_SIGNATURE_ID, details);
    return signature === undefined ? this.#mark(content) : this.#signed(signature);
  }

  #signatureOf(id: string, details: readonly ReasoningDetail[]): string | undefined {
    return details.findLast((one) => isCallSignature(one, this.#wire.reasoning) && one.id === id)?.data;
  }

  #signed(thoughtSignature: string) {
    return { providerOptions: { [this.#wire.metadataKey]: { thoughtSignature } } };
  }

  /** Returns the reasoning of a message that this wire can read; notes the other. A signature of a call goes with the call. */
  #reasoningOf({ reasoning_details: details = [] }: RequestMessage): AssistantPart[] {
    const others = details.filter((detail) => !isCallSignature(detail, this.#wire.reasoning));
    const parts = this.#reasoningParts(others);
    if (parts.length < others.length) this.ignored.add("messages.reasoning_details");
    return parts;
  }

  #reasoningParts(details: readonly ReasoningDetail[]): AssistantPart[] {
    const { metadataKey, reasoning } = this.#wire;
    return details.flatMap((detail): AssistantPart[] => {
      const fields = fieldsOfDetail(detail, reasoning);
      if (fields === undefined) return [];
      return [{ type: "reasoning", text: textOf(detail.text) ?? "", providerOptions: { [metadataKey]: fields } }];
    });
  }

  #call(call: ToolCall, { reasoning_details: details = [] }: RequestMessage): AssistantPart {
    const { id, function: called, extra_content: extra } = call;
    const { name, arguments: given } = called;
    this.#toolNames.set(id, name);
    const signature = readExtraContent(extra).signature ?? this.#signatureOf(id, details);
    return {
      type: "tool-call",
      toolCallId: id,
      toolName: name,
      input: argumentsObject(given),
      ...(signature !== undefined && this.#signed(signature)),
    };
  }

  /** Adds a tool's result. Consecutive results belong to one turn, and most wires require them in one message. */
  #addResult({ tool_call_id: id = "", content }: RequestMessage, at: string): void {
    const toolName = this.#toolNames.get(id);
    if (toolName === undefined) throw unsupportedField(`${at}.tool_call_id`, "no tool call before it has this id");
    const part: LanguageModelV4ToolResultPart = {
      type: "tool-result",
      toolCallId: id,
      toolName,
      output: this.#output(content, at),
      ...this.#mark(content),
    };
    const last = this.#messages.at(-1);
    if (last?.role === "tool") last.content.push(part);
    else this.#messages.push({ role: "tool", content: [part] });
  }

  /** Adds the media of tool results, which this wire takes only from the user. */
  #addMoved(): void {
    if (this.#moved.length > 0) this.#messages.push({ role: "user", content: this.#moved });
    this.#moved = [];
  }

  #output(content: RequestMessage["content"], at: string): LanguageModelV4ToolResultPart["output"] {
    if (!Array.isArray(content) || !content.some(isMedium)) return { type: "text", value: contentText(content, at) };
    const value = this.#userParts(content, at);
    if (!this.#wire.prompt.takesToolImages) {
      this.#moved.push(...value.filter(({ type }) => type === "file"));
      const texts = value.map((part) => (part.type === "text" ? part.text : ""));
      return { type: "text", value: texts.join("") || MOVED_MEDIA };
    }
    const index = value.findIndex((part) => part.type === "file" && part.data.type === "url");
    // Some packages would fetch the address themselves.
    if (index >= 0)
      throw unsupportedField(`${at}.content[${index}]`, "a file in a tool's result must be sent as data:…;base64,…");
    return { type: "content", value };
  }
}

function contentText(content: RequestMessage["content"], at: string): string {
  if (!Array.isArray(content)) return content ?? "";
  return content
    .map((part) => {
      if (part.type === "text") return part.text;
      if (part.type === "refusal") return part.refusal;
      throw unsupportedField(at, "images and files are supported only in user messages");
    })
    .join("");
}

const JPEG = "image/jpeg";
/** File extensions of other images, for wires that require the media type of an address. The image is not fetched. */
const IMAGE_ENDINGS: ReadonlySet<string> = new Set(["gif", "heic", "heif", "png", "webp"]);

type MediaPart = Exclude<ContentPart, { type: "text" | "image_url" | "refusal" }>;

const DATA = /^data:([a-z]+\/[\w.+-]{1,100});base64,/i;
/** Media types of formats whose names are not those of their type. */
const AUDIO_TYPES: Readonly<Record<string, string>> = { mp3: "audio/mpeg", m4a: "audio/mp4" };

function toMedia(part: MediaPart, at: string, { takesOnlyPdf }: PromptRules): LanguageModelV4FilePart {
  if (part.type === "input_audio") {
    const { data, format } = part.input_audio;
    return { type: "file", mediaType: AUDIO_TYPES[format] ?? `audio/${format}`, data: { type: "data", data } };
  }
  if (part.type === "video_url") return fromAddress(part.video_url.url, "video/mp4", `${at}.video_url.url`);
  const { file_data: data, file_url: url, filename } = part.file;
  const file = fromAddress(data ?? url ?? "", "application/pdf", `${at}.file`);
  if (takesOnlyPdf === true && file.mediaType !== "application/pdf")
    throw unsupportedField(`${at}.file`, "only PDF is supported");
  return filename === undefined ? file : { ...file, filename };
}

/** Converts a data URL, or an https address, whose content is taken to have the type of its ending or the usual type. */
function fromAddress(address: string, usualType: string, at: string): LanguageModelV4FilePart {
  const [head, mediaType = ""] = DATA.exec(address.slice(0, 128)) ?? [];
  if (head !== undefined) {
    return { type: "file", mediaType, data: { type: "data", data: address.slice(head.length) } };
  }
  const url = URL.parse(address);
  if (url?.protocol !== "https:") throw unsupportedField(at, "expected an https address, or data:…;base64,…");
  const ending = /\.(\w{3,4})$/.exec(url.pathname.toLowerCase())?.[1] ?? "";
  const isOtherImage = usualType === JPEG && IMAGE_ENDINGS.has(ending);
  return { type: "file", mediaType: isOtherImage ? `image/${ending}` : usualType, data: { type: "url", url } };
}
