import type { Capability } from "../api/model.ts";
import type { Wire } from "./ai-sdk/wire.ts";
import { anthropic } from "./ai-sdk/wires/anthropic.ts";
import { bedrock } from "./ai-sdk/wires/bedrock.ts";
import { cohere } from "./ai-sdk/wires/cohere.ts";
import { google } from "./ai-sdk/wires/google.ts";
import { googleVertex } from "./ai-sdk/wires/google-vertex.ts";
import { mistral } from "./ai-sdk/wires/mistral.ts";
import { xai } from "./ai-sdk/wires/xai.ts";
import { passing, USUAL_HINTS } from "./fields.ts";
import type { RequestFormat } from "./openai/request.ts";
import { AZURE_SCHEMAS, CEREBRAS_SCHEMAS, CLAUDE_SCHEMAS, GROQ_SCHEMAS, OPENAI_SCHEMAS } from "./schemas.ts";
import type { SecondWire } from "./settings.ts";

export interface UnsupportedFeatures {
  /** Capabilities that its models have, but that are not available through this provider. */
  lacks: readonly Capability[];
  /** Fields, or values of them, that it refuses or ignores. `image_url.address` is an image sent by its address. */
  refuses: readonly string[];
}

/** A provider that is recognized by its kind or address, so that the facts and prices of its models are known. */
export interface KnownProvider extends UnsupportedFeatures {
  /** Also the name under which `src/catalog/facts/offers.json` lists its models. */
  id: string;
  name: string;
  /** `openai-compatible`, or the provider's own id if it has a wire or an authentication of its own. */
  kind: string;
  /** The wire of its own, spoken by an AI SDK package; absent for a provider that is compatible with OpenAI's API. */
  wire?: Wire;
  /** The environment variable of its key; null if a key is not enough, so that it must be configured. */
  keyVariable: string | null;
  /** The default address; null if each customer has a different one. */
  baseUrl: string | null;
  otherHosts: readonly string[];
  pricesId: string;
  /** The page of its documentation that this row is based on. */
  documentation: string;
  /** Differences from the default request format of an OpenAI-compatible API. */
  requestFormat?: Partial<RequestFormat>;
  secondWire?: SecondWire;
  /** True if it runs tools of its own, such as a search, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** True if it counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
  /** The limits of the provider's OpenAI-compatible API, if the provider also has a wire of its own. */
  compatible?: UnsupportedFeatures;
}

/** `refuses` does not repeat what the wire lacks. The variable of the key is named after the id by default. */
type Row = Pick<KnownProvider, "id" | "name" | "documentation"> &
  Partial<KnownProvider> &
  ({ wire: Wire } | { baseUrl: string } | { kind: string });

export const OPENAI_COMPATIBLE = "openai-compatible";
/** The kind of Azure OpenAI, which has the API of OpenAI, but addresses and keys of its own. */
export const AZURE = "azure";
/** The name of a deployment does not reveal its model, so Azure gets only the fields that every model takes. */
export const AZURE_FORMAT: Partial<RequestFormat> = {
  maxTokensField: "max_completion_tokens",
  reasoningField: null,
  acceptsExtraContent: false,
  servesTexts: false,
  fields: {
    ...passing("n", "verbosity", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    ...passing("content.file", "content.input_audio"),
  },
  schemas: AZURE_SCHEMAS,
};

/** One row per provider. The first one that offers a model serves its plain id: makers before hosts. */
const ROWS: readonly Row[] = [
  {
    id: "openai",
    name: "OpenAI",
    baseUrl: "https://api.openai.com/v1",
    documentation: "https://platform.openai.com/docs/api-reference/chat",
    // OpenAI refuses message fields that other providers require to be sent back.
    requestFormat: {
      ...AZURE_FORMAT,
      acceptsDeveloperRole: true,
      acceptsMaxEffort: true,
      encodesEmbeddings: true,
      fields: { ...AZURE_FORMAT.fields, ...passing("modalities", "audio", "service_tier", "tools.custom") },
      schemas: OPENAI_SCHEMAS,
    },
    // "Available in the Responses API only" (pages of the Codex and pro models in OpenAI's documentation).
    secondWire: { wire: "responses", servesOnly: /codex|-pro(-\d|$)/ },
  },
  {
    id: "anthropic",
    name: "Anthropic",
    wire: anthropic,
    baseUrl: "https://api.anthropic.com/v1",
    documentation: "https://platform.claude.com/docs/en/api/messages",
    secondWire: { wire: "messages" },
    refuses: ["frequency_penalty", "presence_penalty", "response_format.json_object", "seed"],
    compatible: {
      lacks: ["structured_output", "prompt_caching"],
      refuses: [
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "presence_penalty",
        "reasoning_effort",
        "seed",
        "top_logprobs",
        "user",
      ],
    },
    requestFormat: { fields: passing("thinking") },
  },
  {
    id: "google",
    name: "Google (Gemini API)",
    wire: google,
    keyVariable: "GEMINI_API_KEY",
    baseUrl: "https://generativelanguage.googleapis.com/v1beta",
    documentation: "https://ai.google.dev/api/generate-content",
    secondWire: { wire: "generateContent" },
    requestFormat: { fields: passing("content.input_audio") },
  },
  {
    id: "mistral",
    name: "Mistral",
    wire: mistral,
    baseUrl: "https://api.mistral.ai/v1",
    documentation: "https://docs.mistral.ai/api/endpoint/chat",
    compatible: { lacks: [], refuses: ["logit_bias", "logprobs", "seed", "top_logprobs", "user"] },
    requestFormat: { fields: passing() },
  },
  {
    id: "xai",
    name: "xAI",
    wire: xai,
    baseUrl: "https://api.x.ai/v1",
    pricesId: "x-ai",
    documentation: "https://docs.x.ai/docs/api-reference#create-new-response",
    secondWire: { wire: "responses", lacksTypedTools: true },
    refuses: ["frequency_penalty", "presence_penalty", "stop"],
    compatible: { lacks: [], refuses: ["logit_bias"] },
    requestFormat: { fields: passing() },
  },
  {
    id: "deepseek",
    name: "DeepSeek",
    baseUrl: "https://api.deepseek.com",
    documentation: "https://api-docs.deepseek.com/api/create-chat-completion",
    // "text" and "json_object" are the types of an answer; the other fields are not in the reference.
    refuses: ["logit_bias", "parallel_tool_calls", "response_format.json_schema", "seed", "user"],
    requestFormat: {
      reasoningOff: { thinking: { type: "disabled" } },
      acceptsMaxEffort: true,
      fields: passing("thinking"),
    },
  },
  {
    id: "moonshotai",
    name: "Moonshot AI",
    keyVariable: "MOONSHOT_API_KEY",
    baseUrl: "https://api.moonshot.ai/v1",
    otherHosts: ["api.moonshot.cn"],
    documentation: "https://platform.moonshot.ai/docs/api/chat",
    requestFormat: {
      // "max_tokens is deprecated and not honored": a hold needs a bound that is.
      maxTokensField: "max_completion_tokens",
      reasoningOff: { thinking: { type: "disabled" } },
      fields: passing("thinking", "prompt_cache_key", "safety_identifier", "content.video_url"),
    },
  },
  {
    id: "cohere",
    name: "Cohere",
    wire: cohere,
    baseUrl: "https://api.cohere.com/v2",
    otherHosts: ["api.cohere.ai"],
    documentation: "https://docs.cohere.com/reference/chat",
    compatible: { lacks: [], refuses: ["logit_bias", "parallel_tool_calls", "top_logprobs", "user"] },
    requestFormat: { fields: passing() },
  },
  {
    id: "perplexity",
    name: "Perplexity",
    baseUrl: "https://api.perplexity.ai",
    documentation: "https://docs.perplexity.ai/api-reference/chat-completions-post",
    lacks: ["tools"],
    // They are not among the parameters of its own package, and have no effect.
    refuses: ["logit_bias", "seed", "user"],
    requestFormat: { reasoningField: null, fields: passing("web_search_options", "top_k") },
    runsTools: true,
    countsReasoningBeside: true,
  },
  {
    id: "groq",
    name: "Groq",
    baseUrl: "https://api.groq.com/openai/v1",
    documentation: "https://console.groq.com/docs/openai",
    // "will result in a 400 error (yikes) if they are supplied"; so do fields of messages that it does not know.
    refuses: ["logit_bias", "logprobs", "top_logprobs"],
    requestFormat: {
      maxTokensField: "max_completion_tokens",
      acceptsNames: false,
      acceptsRefusals: false,
      reasoningField: "reasoning",
      acceptsExtraContent: false,
      // "on_demand" is its usual tier, which it has where a request names none.
      fields: { service_tier: "translated" },
      schemas: GROQ_SCHEMAS,
    },
  },
  {
    id: "cerebras",
    name: "Cerebras",
    baseUrl: "https://api.cerebras.ai/v1",
    documentation: "https://inference-docs.cerebras.ai/resources/openai",
    // "will result in a 400 error".
    refuses: ["frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty"],
    requestFormat: {
      maxTokensField: "max_completion_tokens",
      acceptsRefusals: false,
      reasoningField: "reasoning",
      acceptsExtraContent: false,
      fields: passing(),
      schemas: CEREBRAS_SCHEMAS,
    },
  },
  {
    id: "together",
    name: "Together",
    baseUrl: "https://api.together.xyz/v1",
    otherHosts: ["api.together.ai"],
    documentation: "https://docs.together.ai/reference/chat-completions",
    requestFormat: {
      reasoningField: "reasoning",
      fields: passing("n", "top_k", "min_p", "repetition_penalty", "chat_template_kwargs", "content.video_url"),
    },
  },
  {
    id: "fireworks",
    name: "Fireworks",
    baseUrl: "https://api.fireworks.ai/inference/v1",
    documentation: "https://docs.fireworks.ai/api-reference/post-chatcompletions",
    requestFormat: { fields: passing("n", "top_k", "thinking") },
  },
  {
    id: "openrouter",
    name: "OpenRouter",
    baseUrl: "https://openrouter.ai/api/v1",
    documentation: "https://openrouter.ai/docs/guides/best-practices/reasoning-tokens",
    requestFormat: {
      reasoningField: "reasoning",
      acceptsReasoningDetails: true,
      acceptsExtraContent: false,
      fields: {
        ...passing("modalities", "audio", "service_tier", "verbosity", "cache_control"),
        ...passing("top_k", "min_p", "repetition_penalty"),
        ...passing("content.file", "content.input_audio", "content.video_url"),
        "content.file.file_url": "translated",
      },
      // It passes the schemas of Claude on unchanged.
      schemas: { ...CLAUDE_SCHEMAS, models: /^anthropic\// },
    },
  },
  {
    id: AZURE,
    name: "Azure OpenAI",
    kind: AZURE,
    requestFormat: AZURE_FORMAT,
    documentation: "https://learn.microsoft.com/azure/ai-foundry/openai/latest",
  },
  {
    id: "bedrock",
    name: "Amazon Bedrock",
    wire: bedrock,
    pricesId: "aws",
    documentation: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
    refuses: ["frequency_penalty", "image_url.address", "presence_penalty", "response_format.json_object", "seed"],
  },
  {
    id: "google-vertex",
    name: "Google Cloud (Vertex AI)",
    wire: googleVertex,
    pricesId: "google",
    documentation: "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference",
  },
];

export const KNOWN_PROVIDERS: readonly KnownProvider[] = ROWS.map((row) => ({
  kind: row.wire === undefined ? OPENAI_COMPATIBLE : row.id,
  keyVariable: row.baseUrl === undefined ? null : `${row.id.toUpperCase()}_API_KEY`,
  baseUrl: null,
  otherHosts: [],
  pricesId: row.id,
  lacks: [],
  ...row,
  refuses: [...(row.refuses ?? []), ...(row.wire ? fieldsLackedBy(row.wire) : [])].sort(),
}));

function fieldsLackedBy({ fields }: Wire): string[] {
  return ["logit_bias", "logprobs", "top_logprobs", ...USUAL_HINTS.filter((field) => fields[field] === undefined)];
}

export const PROVIDER_KEY_VARIABLES: readonly string[] = KNOWN_PROVIDERS.flatMap(
  ({ keyVariable }) => keyVariable ?? [],
);
