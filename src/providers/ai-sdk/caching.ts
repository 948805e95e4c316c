import type { LanguageModelV4CallOptions, LanguageModelV4Prompt, SharedV4ProviderMetadata } from "@ai-sdk/provider";
import type { CacheControl } from "../../api/chat/request.ts";
import { hasMarks } from "../fields.ts";
import type { UpstreamRequest } from "../provider.ts";
import type { PromptCaching } from "../settings.ts";
import type { Wire } from "./wire.ts";

/** Bytes of a prompt below which no upstream caches it: 1,024 tokens are the least of any Claude. */
const PROMPT_BYTES_MIN = 4 * 1024;
/** An image or a file counts as half of that, so that a small question about one image is not written to a cache. */
const IMAGE_BYTES = PROMPT_BYTES_MIN / 2;
const BREAKPOINT: CacheControl = { type: "ephemeral" };

type Tools = LanguageModelV4CallOptions["tools"];
interface Cached {
  prompt: LanguageModelV4Prompt;
  tools: Tools;
}

/**
 * Marks what the upstream caches, on a wire that needs marks. Where the caller marks nothing: the last tool, the last
 * system message and the last two turns that are not the model's, so that the next turn finds what this one has written. At
 * most four marks, the limit of Anthropic and Bedrock. A caller's mark of the whole request is set on its last message.
 */
export function markCached(
  { prompt: rules }: Pick<Wire, "prompt">,
  request: UpstreamRequest,
  caching: PromptCaching,
  { prompt, tools }: Cached,
): Cached {
  const { cacheMark } = rules;
  if (cacheMark === undefined || caching === "off") return { prompt, tools };
  if (request.cache_control !== undefined) {
    return { prompt: marked(prompt, [prompt.length - 1], cacheMark(request.cache_control, request.model)), tools };
  }
  const options = caching === "auto" ? cacheMark(BREAKPOINT, request.model) : undefined;
  if (options === undefined || hasMarks(request) || isShort(request)) return { prompt, tools };
  const system = prompt.findLastIndex(({ role }) => role === "system");
  const turns = [...prompt.keys()].filter((index) => ["user", "tool"].includes(prompt[index]?.role ?? "")).slice(-2);
  const lastTool = tools?.at(-1);
  const isToolMarked = rules.takesToolMarks === true && lastTool?.type === "function";
  return {
    prompt: marked(prompt, system < 0 ? turns : [system, ...turns], options),
    tools: isToolMarked ? [...(tools ?? []).slice(0, -1), { ...lastTool, providerOptions: options }] : tools,
  };
}

/** Returns the prompt with marks on these messages. The conversation itself is kept, because another call may need it. */
function marked(
  prompt: LanguageModelV4Prompt,
  places: readonly number[],
  options: SharedV4ProviderMetadata | undefined,
): LanguageModelV4Prompt {
  if (options === undefined) return prompt;
  return prompt.map((message, index) =>
    places.includes(index) ? { ...message, providerOptions: { ...message.providerOptions, ...options } } : message,
  );
}

function isShort({ instructions = "", messages, tools }: UpstreamRequest): boolean {
  let length = instructions.length + (tools === undefined ? 0 : JSON.stringify(tools).length);
  for (const { content } of messages) {
    if (typeof content === "string") length += content.length;
    else for (const part of content ?? []) length += part.type === "text" ? part.text.length : IMAGE_BYTES;
    if (length >= PROMPT_BYTES_MIN) return false;
  }
  return true;
}
