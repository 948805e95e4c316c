import { type ContentPart, RARE_FIELDS } from "../api/chat/request.ts";
import { detailsOf } from "../api/json.ts";
import { type UpstreamError, type UpstreamRequest, unsupportedField } from "./provider.ts";

/** Treatment of a field: it goes to the upstream as it is, or under another name, or is refused, or is left out and named. */
export type Treatment = "passed" | "translated" | "refused" | "ignored";

/** Parts of messages and of tools that not every upstream takes, in the words of a refusal. */
const PARTS = {
  "tools.custom": "custom tools",
  "content.file": "files",
  "content.file.file_url": "the address of a file; send its bytes as file_data",
  "content.input_audio": "audio",
  "content.video_url": "video",
} as const;
type PartName = keyof typeof PARTS;
const PART_NAMES = Object.keys(PARTS) as PartName[];
type TopField = "n" | keyof typeof RARE_FIELDS;
export type RareField = TopField | PartName;
const TOP_FIELDS: readonly TopField[] = ["n", ...(Object.keys(RARE_FIELDS) as (keyof typeof RARE_FIELDS)[])];
/** The fields that not every upstream takes, and the parts. */
export const RARE: readonly RareField[] = [...TOP_FIELDS, ...PART_NAMES];
/** Those that change the answer. */
const REFUSED: ReadonlySet<string> = new Set([
  ...["n", "modalities", "audio", "web_search_options", "chat_template_kwargs"],
  ...PART_NAMES,
]);

/** Name in `x-tollgate-ignored` of the effort `max` where an upstream gets a lower one. */
export const LOWERED_EFFORT = "reasoning_effort.max";

/** Hints that most upstreams take, but not every package of an AI SDK. */
export const USUAL_HINTS = ["user", "parallel_tool_calls"] as const;

/** The fields that an upstream takes, in this form. */
export type FieldSupport = Partial<Record<RareField | (typeof USUAL_HINTS)[number], Treatment>>;

const supporting =
  (treatment: Treatment) =>
  (...fields: readonly (keyof FieldSupport)[]): FieldSupport =>
    Object.fromEntries(fields.map((field) => [field, treatment]));
export const passing = supporting("passed");
export const translating = supporting("translated");

/** Returns the treatment of a field, by default: a hint is ignored, and one that changes the answer is refused. */
export function treatmentOf(support: FieldSupport, field: RareField): Treatment {
  return support[field] ?? (REFUSED.has(field) ? "refused" : "ignored");
}

/** Tests for values that say the same as an absent field. */
const DEFAULTS: { [Field in TopField]?: (value: NonNullable<UpstreamRequest[Field]>) => boolean } = {
  modalities: (value) => value.every((one) => one === "text"),
  service_tier: (value) => value === "auto" || value === "default",
  store: (value) => !value,
  top_k: (value) => value === 0,
  min_p: (value) => value === 0,
  repetition_penalty: (value) => value === 1,
  verbosity: (value) => value === "medium",
};

/** Leaves out the hints that an upstream does not take. Throws UpstreamError for a field that changes the answer. */
export function fitFields(request: UpstreamRequest, support: FieldSupport) {
  const { service_tier: tier } = request;
  // No price of a route covers a tier that costs more than the usual one.
  if (tier === "priority" || tier === "scale") throw refusal("service_tier", `'service_tier' to be ${tier}`);
  const ignored: string[] = [];
  let fitted = request;
  for (const field of TOP_FIELDS) {
    const value = request[field];
    if (value === undefined) continue;
    const isDefault = DEFAULTS[field] as ((value: unknown) => boolean) | undefined;
    const says = isDefault?.(value) !== true;
    // An API with other tiers than OpenAI's has no `default`, and its `auto` may be a dearer one.
    const hasOtherTiers = field === "service_tier" && treatmentOf(support, field) === "translated";
    if (isTaken(support, field) && (says || !hasOtherTiers)) continue;
    if (says && treatmentOf(support, field) === "refused") throw refusal(field, `'${field}'`);
    if (says) ignored.push(field);
    fitted = { ...fitted, [field]: undefined };
  }
  refuseParts(request, support);
  if (isTaken(support, "cache_control") || !hasMarks(request)) return { request: fitted, ignored };
  if (!ignored.includes("cache_control")) ignored.push("cache_control");
  return { request: withoutMarks(fitted), ignored };
}

function isTaken(support: FieldSupport, field: RareField): boolean {
  const treatment = treatmentOf(support, field);
  return treatment === "passed" || treatment === "translated";
}

function refuseParts({ messages, tools }: UpstreamRequest, support: FieldSupport): void {
  const custom = tools?.findIndex((tool) => tool.custom !== undefined) ?? -1;
  if (custom >= 0 && !isTaken(support, "tools.custom")) throw refusal(`tools[${custom}].type`, PARTS["tools.custom"]);
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [place, part] of content.entries()) {
      const field = fieldOfPart(part);
      if (field === undefined || isTaken(support, field)) continue;
      throw refusal(`messages[${index}].content[${place}]`, PARTS[field]);
    }
  }
}

function fieldOfPart(part: ContentPart): PartName | undefined {
  if (part.type === "file") return part.file.file_url === undefined ? "content.file" : "content.file.file_url";
  if (part.type === "input_audio") return "content.input_audio";
  return part.type === "video_url" ? "content.video_url" : undefined;
}

function refusal(param: string, what: string): UpstreamError {
  return unsupportedField(param, `this model does not support ${what}`);
}

/** True for a part that is neither a text nor a refusal. */
export function isMedium({ type }: ContentPart): boolean {
  return type !== "text" && type !== "refusal";
}

/** The result of a tool whose only parts are media that the next message of the user has. */
export const MOVED_MEDIA = "In the next message.";

/** Tests whether a request marks what the upstream may cache. */
export function hasMarks({ messages, tools }: UpstreamRequest): boolean {
  if (tools?.some((tool) => tool.cache_control !== undefined)) return true;
  return messages.some(({ content }) => Array.isArray(content) && content.some((part) => markOf(part) !== undefined));
}

/** Returns the mark of a part. */
export function markOf(part: ContentPart) {
  return "cache_control" in part ? part.cache_control : undefined;
}

function withoutMarks(request: UpstreamRequest): UpstreamRequest {
  const withoutMark = (part: ContentPart) => ("cache_control" in part ? { ...part, cache_control: undefined } : part);
  const messages = request.messages.map((message) => {
    return Array.isArray(message.content) ? { ...message, content: message.content.map(withoutMark) } : message;
  });
  return { ...request, messages, tools: request.tools?.map((tool) => ({ ...tool, cache_control: undefined })) };
}

/** "The minimum is 1,024 tokens" ("Extended thinking" in Anthropic's documentation). */
const THINKING_TOKENS_MIN = 1_024;

/** Returns `thinking` with a budget below the bound of the answer, which the hold covers, where it is not. */
export function thinkingWithin(thinking: unknown, maxTokens: number): { thinking?: object } {
  const { budget_tokens: budget } = detailsOf(thinking);
  if (typeof budget !== "number" || budget < maxTokens) return {};
  if (maxTokens <= THINKING_TOKENS_MIN) return { thinking: { type: "disabled" } };
  const lowered = Math.max(THINKING_TOKENS_MIN, Math.floor(maxTokens / 2));
  return { thinking: { ...detailsOf(thinking), budget_tokens: lowered } };
}
