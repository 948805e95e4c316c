import type { LanguageModelV4CallOptions } from "@ai-sdk/provider";
import { detailsOf, objectsIn } from "../../../api/json.ts";
import { translating } from "../../fields.ts";
import { UpstreamError, type UpstreamRequest } from "../../provider.ts";
import { CLAUDE_SCHEMAS } from "../../schemas.ts";
import type { ProviderSettings } from "../../settings.ts";
import { CLAUDE_REASONING } from "../reasoning.ts";
import { type Fetch, missingKey, optionsOf, type Wire } from "../wire.ts";
import { claudeFit } from "./anthropic.ts";

async function open(settings: ProviderSettings, fetch: Fetch) {
  const { createAmazonBedrock } = await import("@ai-sdk/amazon-bedrock");
  const { region = "", accessKeyId = "", secretAccessKey = "", sessionToken } = settings;
  const domain = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const baseUrl = settings.baseUrl ?? `https://bedrock-runtime.${region}.${domain}`;
  const keys = { region, accessKeyId, secretAccessKey, ...(sessionToken && { sessionToken }) };
  return createAmazonBedrock({ ...optionsOf({ ...settings, baseUrl }, fetch), ...keys });
}

/** Each family of models has its own name for the length of a vector; Titan's texts that are too long are refused anyway. */
function embeddingOptions(dimensions: number | undefined, model: string) {
  if (model.includes("cohere.")) {
    return { truncate: "NONE", inputType: "search_document", outputDimension: dimensions };
  }
  return model.includes("nova") ? { truncate: "NONE", embeddingDimension: dimensions } : { dimensions };
}

/** Amazon Bedrock's Converse API: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html */
export const bedrock: Wire = {
  packages: ["@ai-sdk/amazon-bedrock"],
  keys: ["apiKey", "baseUrl", "region", "accessKeyId", "secretAccessKey", "sessionToken"],
  fault(settings) {
    const { apiKey, accessKeyId, secretAccessKey, sessionToken } = settings;
    if (apiKey === null) return missingKey(settings, "region", "accessKeyId", "secretAccessKey");
    if (accessKeyId || secretAccessKey || sessionToken)
      return "takes apiKey, or accessKeyId and secretAccessKey, not both";
    return missingKey(settings, "region");
  },
  connect: (settings) => (fetch) => open(settings, fetch),
  embedding: {
    options: (dimensions, model) => ({ bedrock: embeddingOptions(dimensions, model) }),
  },
  fields: translating("parallel_tool_calls", "thinking", "service_tier", "cache_control", "content.file"),
  // The same as on Anthropic's own API ("Get validated JSON results" in Bedrock's user guide).
  schemas: { ...CLAUDE_SCHEMAS, models: /anthropic/ },
  fit(given) {
    const isClaude = given.model.includes("anthropic");
    const hasForeignThinking = given.thinking !== undefined && !isClaude;
    const request: UpstreamRequest = hasForeignThinking ? { ...given, thinking: undefined } : given;
    const { parallel_tool_calls: isParallel, tools, service_tier: tier } = request;
    const { options, thinking, ignored = [] } = isClaude ? claudeFit(request) : {};
    const isSerial = tools !== undefined && isParallel === false;
    const providerOptions = { anthropic: { disableParallelToolUse: isSerial || undefined } };
    return {
      options: { ...effort(request), ...options, ...toolsOfConversation(request), providerOptions },
      own: { reasoningConfig: thinking, serviceTier: tier === "flex" ? tier : undefined },
      ignored: [
        ...ignored,
        ...(hasForeignThinking ? ["thinking"] : []),
        ...(isSerial && !isClaude ? ["parallel_tool_calls"] : []),
      ],
    };
  },
  prompt: {
    isSystemFirst: true,
    refusesImageAddresses: true,
    takesToolImages: true,
    cacheMark: ({ ttl }, model) =>
      CACHES_MARKED.test(model) ? { bedrock: { cachePoint: { type: "default", ...(ttl && { ttl }) } } } : undefined,
  },
  metadataKey: "bedrock",
  // "Per-request metadata tagging" in Bedrock's user guide: the model invocation logs have it.
  identify: (requestId) => ({ requestMetadata: { tollgate_request_id: requestId } }),
  reasoning: { ...CLAUDE_REASONING, encryptedAs: ["redactedContent", "redactedData"] },
  // Writes that are kept for an hour cost more ("CacheDetail" in the reference of the API).
  partsOf(raw) {
    const { cacheDetails } = detailsOf(raw);
    return { cache_write_1h_tokens: objectsIn(cacheDetails).find(({ ttl }) => ttl === "1h")?.inputTokens };
  },
};

/** Models that cache what is marked ("Prompt caching" in Bedrock's user guide); others refuse a mark. */
const CACHES_MARKED = /anthropic\.claude-(3-5-haiku|3-7|[a-z]+-[4-9])|amazon\.nova-/;

/** Limits the effort of Nova, which with high effort refuses a limit of its answer ("Extended thinking" in Nova's guide). A hold needs that limit. */
function effort({ model, reasoning_effort: effort }: UpstreamRequest): Partial<LanguageModelV4CallOptions> {
  const isHigh = effort === "high" || effort === "xhigh" || effort === "max";
  if (model.includes("nova") && isHigh) return { reasoning: "medium" };
  // The package sends its `xhigh` as `max`, and does not know `max`.
  return effort === "max" ? { reasoning: "xhigh" } : {};
}

/** Adds the tools of the conversation's calls, which Converse requires. Throws UpstreamError if calls are forbidden. */
function toolsOfConversation({
  messages,
  tools,
  tool_choice: choice,
}: UpstreamRequest): Partial<LanguageModelV4CallOptions> {
  const calls = messages.flatMap(({ tool_calls = [] }) => tool_calls);
  if (calls.length === 0 || (tools !== undefined && choice !== "none")) return {};
  if (choice === "none") {
    const publicReason =
      "Amazon Bedrock does not support 'tool_choice: none' in a conversation that contains tool calls.";
    throw new UpstreamError("unsupported", "The request cannot be expressed on this wire", { publicReason });
  }
  const names = [...new Set(calls.map((call) => call.function.name))];
  const inputSchema = { type: "object" as const, properties: {} };
  return { tools: names.map((name) => ({ type: "function", name, inputSchema })) };
}
