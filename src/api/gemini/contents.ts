import type { ContentPart, ReasoningDetail, RequestMessage, ToolCall } from "../chat/request.ts";
import { PlacedMessages } from "../placed-messages.ts";
import { invalid, refuse } from "../validation.ts";
import type { GeminiContent, GeminiPart } from "./request.ts";
import { detailOf, extraContentOf, TEXT_SIGNATURE_ID } from "./signatures.ts";

type FunctionResponse = NonNullable<GeminiPart["functionResponse"]>;

/** Converts contents to messages. */
export class ContentMessages extends PlacedMessages {
  /** Calls without a result, the oldest first. */
  readonly #open: { id: string; name: string }[] = [];
  #calls = 0;

  /** Throws InvalidRequestError. */
  constructor(contents: readonly GeminiContent[]) {
    super();
    for (const [index, { role, parts }] of contents.entries()) {
      if (role === "model") this.#readAnswer(parts, `contents[${index}]`);
      else this.#readUser(parts, `contents[${index}]`);
    }
  }

  #readUser(parts: readonly GeminiPart[], path: string): void {
    const content: ContentPart[] = [];
    for (const [index, part] of parts.entries()) {
      const at = `${path}.parts[${index}]`;
      if (part.functionResponse !== undefined) this.#addResult(part.functionResponse, at);
      else content.push(this.#part(part, at));
    }
    const [first] = content;
    if (first === undefined) {
      if (parts.length === 0) refuse(invalid(`${path}.parts`, "expected at least one part"));
      return;
    }
    const isText = content.length === 1 && first.type === "text";
    this.add({ role: "user", content: isText ? first.text : content }, path);
  }

  #part(part: GeminiPart, at: string): ContentPart {
    return this.note(contentOf(part, at), `${at}${part.inlineData ? ".inlineData" : part.fileData ? ".fileData" : ""}`);
  }

  #addResult({ id, name, response = {}, parts = [] }: FunctionResponse, at: string): void {
    const index = this.#open.findIndex((call) => (id === undefined ? call.name === name : call.id === id));
    const [call] = index < 0 ? [] : this.#open.splice(index, 1);
    if (call === undefined) {
      const reason = `no functionCall before it without a result has this ${id === undefined ? "name" : "id"}`;
      refuse(invalid(`${at}.functionResponse`, reason));
    }
    const text = JSON.stringify(response);
    const media = parts.map((part, place) => this.#part(part, `${at}.functionResponse.parts[${place}]`));
    const content = media.length > 0 ? [{ type: "text" as const, text }, ...media] : text;
    this.add({ role: "tool", tool_call_id: call.id, content }, at);
  }

  #readAnswer(parts: readonly GeminiPart[], path: string): void {
    const message: RequestMessage = { role: "assistant" };
    for (const [index, part] of parts.entries()) {
      const at = `${path}.parts[${index}]`;
      if (part.functionCall !== undefined) {
        message.tool_calls = [...(message.tool_calls ?? []), this.#call(part.functionCall, part.thoughtSignature)];
      } else if (part.thought === true) {
        const { text = "", thoughtSignature: signature } = part;
        if (text !== "") message.reasoning_content = `${message.reasoning_content ?? ""}${text}`;
        if (signature !== undefined) addDetail(message, detailOf(signature, text));
      } else {
        const content = contentOf(part, at);
        if (content.type !== "text") refuse(invalid(at, "a model's content has only texts and calls"));
        if (part.thoughtSignature !== undefined) {
          addDetail(message, { id: TEXT_SIGNATURE_ID, ...detailOf(part.thoughtSignature, "") });
        }
        message.content = `${message.content ?? ""}${content.text}`;
      }
    }
    if (message.content === undefined && message.tool_calls === undefined) message.content = "";
    this.add(message, path);
  }

  /** A call without an id gets one that no client sends, so that its result finds it. */
  #call({ id, name, args = {} }: NonNullable<GeminiPart["functionCall"]>, signature: string | undefined): ToolCall {
    this.#calls += 1;
    const call: ToolCall = {
      id: id ?? `call_${this.#calls}_of_${name}`.slice(0, 40),
      type: "function",
      function: { name, arguments: JSON.stringify(args) },
    };
    this.#open.push({ id: call.id, name });
    if (signature !== undefined) call.extra_content = extraContentOf(signature);
    return call;
  }
}

function addDetail(message: RequestMessage, detail: ReasoningDetail): void {
  message.reasoning_details = [...(message.reasoning_details ?? []), detail];
}

function contentOf({ text, inlineData, fileData }: GeminiPart, at: string): ContentPart {
  if (inlineData !== undefined) return inlineContent(inlineData);
  if (fileData !== undefined) return fileContent(fileData);
  if (text !== undefined) return { type: "text", text };
  const kinds = "text, inlineData, fileData, functionCall or functionResponse";
  refuse(invalid(at, `expected one of ${kinds}`));
}

function inlineContent({ mimeType, data }: NonNullable<GeminiPart["inlineData"]>): ContentPart {
  const type = mimeType.toLowerCase().split(";", 1)[0] ?? "";
  // The wire's JSON may have the other alphabet of base64 (RFC 4648, section 5).
  const base64 = data.replaceAll("-", "+").replaceAll("_", "/");
  const url = `data:${type};base64,${base64}`;
  const [kind, subtype = ""] = type.split("/");
  if (kind === "image") return { type: "image_url", image_url: { url } };
  if (kind === "video") return { type: "video_url", video_url: { url } };
  if (kind !== "audio") return { type: "file", file: { file_data: url } };
  const format = subtype === "mpeg" ? "mp3" : subtype.replace(/^x-/, "");
  return { type: "input_audio", input_audio: { data: base64, format } };
}

function fileContent({ mimeType = "", fileUri }: NonNullable<GeminiPart["fileData"]>): ContentPart {
  if (mimeType.startsWith("image/")) return { type: "image_url", image_url: { url: fileUri } };
  if (mimeType.startsWith("video/")) return { type: "video_url", video_url: { url: fileUri } };
  return { type: "file", file: { file_url: fileUri } };
}
