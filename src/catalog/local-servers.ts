import { Agent, request } from "undici";
import { detailsOf, objectsIn } from "../api/json.ts";
import type { Capability } from "../api/model.ts";
import { isoDay } from "../api/time.ts";
import type { LocalServer } from "../providers/local-servers.ts";
import type { EmbeddingSizes } from "./model.ts";

/** A local model server that answered, and its models. */
export interface FoundServer extends LocalServer {
  models: readonly FoundModel[];
}

export interface FoundModel {
  name: string;
  contextWindow?: number;
  /** Date of the model's file, YYYY-MM-DD, if the server reports it. */
  fileDate?: string;
  can?: readonly Capability[];
  /** Present for a model that creates embeddings; the length of its vectors, if the server reports it. */
  embedding?: Pick<EmbeddingSizes, "dimensions">;
}

/** Fetches a JSON document from a server; undefined if there is none in time. */
type Fetch = (url: string, body?: unknown) => Promise<unknown>;

const DETAILS: Record<string, (origin: string, names: string[], fetch: Fetch) => Promise<Map<string, Detail>>> = {
  ollama: ollamaDetails,
  lmstudio: lmStudioDetails,
};

type Detail = Omit<FoundModel, "name"> | "of no use";

const MODELS_MAX = 500;
const DETAILED_MODELS_MAX = 50;
const BODY_BYTES_MAX = 4 * 1024 * 1024;
const NAME = /^[^\s\p{Cc}]{1,180}$/u;

/** Returns the servers that list models within `timeoutMs`, except services of this kind. `ownPort` is not called. */
export async function findServers(
  servers: readonly LocalServer[],
  { ownPort, timeoutMs }: { ownPort: number | undefined; timeoutMs: number },
): Promise<FoundServer[]> {
  const others = servers.filter(({ baseUrl }) => Number(new URL(baseUrl).port) !== ownPort);
  const agent = new Agent({ connect: { timeout: timeoutMs }, maxResponseSize: BODY_BYTES_MAX });
  const signal = AbortSignal.timeout(timeoutMs);
  const fetch: Fetch = (url, body) => fetchJson(agent, signal, url, body);
  try {
    const found = await Promise.all(others.map((server) => findServer(server, fetch)));
    return found.filter((server) => server !== undefined);
  } finally {
    await agent.destroy();
  }
}

async function findServer(server: LocalServer, fetch: Fetch): Promise<FoundServer | undefined> {
  const listed = readList(await fetch(`${server.baseUrl}/models`));
  if (listed === undefined) return undefined;
  const names = [...listed.keys()];
  const details = await DETAILS[server.id]?.(new URL(server.baseUrl).origin, names, fetch);
  const models = names.flatMap((name): FoundModel[] => {
    const detail = details?.get(name);
    return detail === "of no use" ? [] : [{ name, ...listed.get(name), ...detail }];
  });
  return { ...server, models };
}

/** Reads the models of an OpenAI model list by name; undefined if it is not such a list, or the list of a Tollgate service. */
function readList(answer: unknown): Map<string, Omit<FoundModel, "name">> | undefined {
  const { object, data } = detailsOf(answer);
  if (object !== "list" || !Array.isArray(data)) return undefined;
  const entries = data.map(detailsOf);
  if (entries.some((entry) => typeof entry.id !== "string" || entry.owned_by === "tollgate")) return undefined;
  const named = entries.filter(({ id }) => NAME.test(String(id))).slice(0, MODELS_MAX);
  return new Map(
    named.map((entry) => {
      // vLLM reports `max_model_len`, llama.cpp `meta.n_ctx` and `meta.n_ctx_train`.
      const meta = detailsOf(entry.meta);
      const contextWindow = tokens(entry.max_model_len) ?? tokens(meta.n_ctx) ?? tokens(meta.n_ctx_train);
      return [String(entry.id), contextWindow === undefined ? {} : { contextWindow }];
    }),
  );
}

/** Reads file dates from Ollama's `GET /api/tags`, and capabilities and context lengths from its `POST /api/show`. */
async function ollamaDetails(origin: string, names: string[], fetch: Fetch): Promise<Map<string, Detail>> {
  const { models } = detailsOf(await fetch(`${origin}/api/tags`));
  const dates = new Map(objectsIn(models).map(({ name, modified_at }) => [name, day(modified_at)]));
  const shown = names.slice(0, DETAILED_MODELS_MAX).map(async (name): Promise<[string, Detail]> => {
    const { capabilities, model_info: info } = detailsOf(await fetch(`${origin}/api/show`, { model: name }));
    const fileDate = dates.get(name);
    if (!Array.isArray(capabilities)) return [name, { fileDate }];
    const numberOf = (end: string) => tokens(Object.entries(detailsOf(info)).find(([key]) => key.endsWith(end))?.[1]);
    const contextWindow = numberOf(".context_length");
    const known = { fileDate, ...(contextWindow && { contextWindow }) };
    if (!capabilities.includes("completion")) {
      const embedding = { dimensions: numberOf(".embedding_length") };
      return [name, capabilities.includes("embedding") ? { ...known, embedding } : "of no use"];
    }
    const words = { tools: "tools", vision: "vision", thinking: "reasoning" } as const;
    const can = Object.entries(words).flatMap(([word, capability]) =>
      capabilities.includes(word) ? [capability] : [],
    );
    return [name, { ...known, can: ["structured_output", ...can] }];
  });
  return new Map(await Promise.all(shown));
}

/** Reads types, capabilities and context lengths from LM Studio's `GET /api/v0/models`. */
async function lmStudioDetails(origin: string, _names: string[], fetch: Fetch): Promise<Map<string, Detail>> {
  const { data } = detailsOf(await fetch(`${origin}/api/v0/models`));
  return new Map(
    objectsIn(data).map((entry): [string, Detail] => {
      const { id, type, capabilities } = entry;
      const contextWindow = tokens(entry.loaded_context_length) ?? tokens(entry.max_context_length);
      if (type === "embeddings") return [String(id), { ...(contextWindow && { contextWindow }), embedding: {} }];
      const can: Capability[] = ["structured_output"];
      if (Array.isArray(capabilities) && capabilities.includes("tool_use")) can.push("tools");
      if (type === "vlm") can.push("vision");
      return [String(id), { ...(contextWindow && { contextWindow }), can }];
    }),
  );
}

async function fetchJson(agent: Agent, signal: AbortSignal, url: string, body: unknown): Promise<unknown> {
  const sent =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const method = body === undefined ? "GET" : "POST";
  try {
    const answer = await request(url, { ...sent, method, signal, dispatcher: agent, reset: true });
    const document = await answer.body.json();
    return answer.statusCode === 200 ? document : undefined;
  } catch {
    // The search treats an absent server, another kind of server, a long answer and a timeout alike.
    return undefined;
  }
}

function tokens(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value > 0 && value <= 1e9 ? value : undefined;
}

function day(value: unknown): string | undefined {
  const time = typeof value === "string" ? Date.parse(value) : Number.NaN;
  return Number.isNaN(time) ? undefined : isoDay(time);
}
