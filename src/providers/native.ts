import { detailsOf, type JsonObject } from "../api/json.ts";
import { isWebSearch } from "../api/messages/typed-tools.ts";
import { isSearch } from "../api/responses/tools.ts";
import type { NativeRequest } from "../api/wire.ts";
import { thinkingWithin } from "./fields.ts";
import { bearerKey, UpstreamClient } from "./http/upstream-client.ts";
import { GeminiReader } from "./native/gemini.ts";
import { MessagesReader } from "./native/messages.ts";
import { ResponsesReader } from "./native/responses.ts";
import { toResponsesBody } from "./native/responses-request.ts";
import { ask, type WireReader } from "./openai/answer.ts";
import type { Provider, ProviderCall, UpstreamRequest } from "./provider.ts";
import { fitSchemas } from "./schemas.ts";
import type { Scrub } from "./scrub.ts";
import type { Environment, ProviderSettings, SecondWire } from "./settings.ts";

interface NativeWire {
  path(request: UpstreamRequest): string;
  keyHeaders(settings: ProviderSettings): Record<string, string>;
  /** Headers of requests that state none of their own. */
  headers: Readonly<Record<string, string>>;
  /** Returns the body with the model and the bounds that the gateway has chosen. */
  body(native: NativeRequest, request: UpstreamRequest, searchesMost: number): NativeRequest["body"];
  reader(scrub: Scrub): WireReader;
}

const WIRES: Readonly<Record<SecondWire["wire"], NativeWire>> = {
  messages: {
    path: () => "/messages",
    keyHeaders: ({ apiKey }) => ({ ...(apiKey !== null && { "x-api-key": apiKey }) }),
    // Anthropic requires a version ("Versions" in its API reference).
    headers: { "anthropic-version": "2023-06-01" },
    body: ({ body }, { model, max_tokens, stream }, searchesMost) => {
      const tools = toolsOf(body)?.map((tool) => {
        if (!isWebSearch(tool)) return tool;
        return { ...tool, max_uses: leastOf(tool.max_uses, searchesMost) };
      });
      return { ...body, tools, ...thinkingWithin(body.thinking, max_tokens), model, max_tokens, stream };
    },
    reader: () => new MessagesReader(),
  },
  responses: {
    path: () => "/responses",
    keyHeaders: bearerKey,
    headers: {},
    // The upstream stores nothing: its ids mean nothing to this service's clients.
    body: ({ body }, { model, max_tokens: max_output_tokens, stream }, searchesMost) => {
      const { max_tool_calls: asked, ...others } = body;
      const tools = toolsOf(body)?.filter(({ type }) => searchesMost > 0 || !isSearch(String(type)));
      const searches = tools?.some(({ type }) => isSearch(String(type))) === true;
      const bound = searches ? { max_tool_calls: leastOf(asked, searchesMost) } : {};
      return { ...others, tools, ...bound, model, max_output_tokens, stream, store: false };
    },
    reader: (scrub) => new ResponsesReader(scrub, { keepsEvents: true }),
  },
  generateContent: {
    path: ({ model, stream }) => {
      const place = model.includes("/") ? model : `models/${model}`;
      return `/${place}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`;
    },
    keyHeaders: ({ apiKey }) => ({ ...(apiKey !== null && { "x-goog-api-key": apiKey }) }),
    headers: {},
    body: ({ body }, { max_tokens: maxOutputTokens }, searchesMost) => {
      const tools = toolsOf(body)?.filter(({ googleSearch }) => googleSearch === undefined || searchesMost > 0);
      return { ...body, tools, generationConfig: { ...detailsOf(body.generationConfig), maxOutputTokens } };
    },
    reader: () => new GeminiReader(),
  },
};

function toolsOf({ tools }: NativeRequest["body"]): JsonObject[] | undefined {
  return Array.isArray(tools) ? tools.map(detailsOf) : undefined;
}

function leastOf(asked: unknown, most: number): number {
  return typeof asked === "number" ? Math.min(asked, most) : most;
}

/** Betas by which a request could cost more than its hold. Others pass, as Claude Code asks of gateways. */
const DEAR_BETA =
  /^(advisor-tool|code-execution|compact|context-1m|fast-mode|mcp-client|server-side-fallback|skills|web-fetch|web-search)-[\w-]{1,40}$/;

function withoutDearBetas({ "anthropic-beta": sent, ...others }: NativeRequest["headers"]): {
  headers: NativeRequest["headers"];
  ignored: string[];
} {
  if (sent === undefined) return { headers: others, ignored: [] };
  const betas = sent.split(",").map((beta) => beta.trim());
  const ignored = betas.filter((beta) => DEAR_BETA.test(beta));
  const kept = betas.filter((beta) => beta !== "" && !ignored.includes(beta));
  const headers = kept.length === 0 ? others : { ...others, "anthropic-beta": kept.join(",") };
  return { headers, ignored: ignored.map((beta) => `anthropic-beta.${beta}`) };
}

/** Returns a provider that also takes requests on the second wire of its settings, if any. Throws OperatorError. */
export function withSecondWire(provider: Provider, settings: ProviderSettings, environment: Environment): Provider {
  const { secondWire, baseUrl } = settings;
  if (secondWire === undefined || baseUrl === null) return provider;
  const wire = WIRES[secondWire.wire];
  const { servesOnly, lacksTypedTools = false } = secondWire;
  const client = new UpstreamClient(settings, environment, wire.keyHeaders(settings));
  const isTranslated = ({ model }: UpstreamRequest) => servesOnly?.test(model) === true;
  return {
    ...provider,
    nativeWire: secondWire.wire,
    lacksTypedTools,
    convert: (request) => (isTranslated(request) ? toResponsesBody(request) : provider.convert?.(request)),
    complete: async (call) => {
      if (call.native !== undefined) return pass(client, wire, call, call.native);
      return isTranslated(call.request) ? translate(client, wire, call, settings) : provider.complete(call);
    },
    close: async () => {
      await Promise.all([provider.close(), client.close()]);
    },
  };
}

async function pass(client: UpstreamClient, wire: NativeWire, call: ProviderCall, native: NativeRequest) {
  const body = JSON.stringify(wire.body(native, call.request, call.searchesMost ?? 0));
  const { headers: own, ignored } = withoutDearBetas(native.headers);
  const { reader } = wire;
  const asked = { path: wire.path(call.request), headers: { ...wire.headers, ...own }, reader, body, isPassed: true };
  return { ignored, chunks: await ask(client, call, asked) };
}

async function translate(client: UpstreamClient, wire: NativeWire, call: ProviderCall, settings: ProviderSettings) {
  const { request, ignored: keywords } = fitSchemas(call.request, settings.requestFormat?.schemas);
  const { body, ignored: left } = toResponsesBody(request);
  const reader = (scrub: Scrub) => new ResponsesReader(scrub, { keepsEvents: false });
  const asked = { path: wire.path(request), headers: wire.headers, reader, body: JSON.stringify(body), isPassed: true };
  return { ignored: [...keywords, ...left], chunks: await ask(client, call, asked) };
}
