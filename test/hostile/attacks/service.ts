import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { makeOrganization, type ServiceOptions, type ServiceProcess, startProcess } from "../../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream, type UpstreamRequest } from "../../support/upstream.ts";
import type { Target } from "./attack.ts";

export interface AttackedService {
  service: ServiceProcess;
  target: Target;
  end(): Promise<void>;
}

/** Few, so that an attack can use up its share. */
const CONNECTIONS_MAX = 2_000;
const DIMENSIONS = 512;
const WORDS = Array.from({ length: 40 }, (_, index) => ` word${index}`);
const USAGE = { prompt_tokens: 7, completion_tokens: 40, total_tokens: 47 };

const complete = answering({ words: WORDS, usage: USAGE });
const streamWithoutUsage = answering({ words: WORDS });
const answer: Behaviour = (request) => (request.body.stream ? streamWithoutUsage(request) : complete(request));

/** Answers with the status that the last message asks for, or after as many milliseconds: `status 429 retry-after 30`. */
const fragile: Behaviour = (request) => {
  const messages = request.body.messages as { content: string }[];
  const content = messages.at(-1)?.content ?? "";
  const [, waitMs] = /^wait (\d+)$/.exec(content) ?? [];
  if (waitMs !== undefined) return void setTimeout(() => answer(request), Number(waitMs));
  const [, status, seconds] = /^status (\d{3})(?: retry-after (\d+))?$/.exec(content) ?? [];
  if (status === undefined) return answer(request);
  const headers: Record<string, string> = seconds === undefined ? {} : { "retry-after": seconds };
  sendJson(request.response, Number(status), { error: { message: "As you wish" } }, headers);
};

/** Serialized once for each number of inputs: this process also measures how long answers take. */
const vectorAnswers = new Map<number, string>();

const embed: Behaviour = ({ body, response }) => {
  const { length } = [body.input].flat();
  const known = vectorAnswers.get(length) ?? vectorsOf(length);
  vectorAnswers.set(length, known);
  response.writeHead(200, { "content-type": "application/json" }).end(known);
};

function vectorsOf(length: number): string {
  const embedding = Array.from({ length: DIMENSIONS }, (_, at) => Math.sin(at));
  const data = Array.from({ length }, (_, index) => ({ index, embedding }));
  return JSON.stringify({ object: "list", data, model: "vectors", usage: { prompt_tokens: 9, total_tokens: 9 } });
}

/**
 * Starts a service with a provider that fails on demand, an organization with credits and an admin token. It takes all work
 * unless `overload` states its own limits: on a busy machine it would refuse some without an attack.
 */
export async function startAttackedService(
  options: Pick<ServiceOptions, "databaseUrl"> & { overload?: object } = {},
): Promise<AttackedService> {
  const { overload, ...place } = options;
  const upstream = await startUpstream();
  const behave = (model: string, behaviour: Behaviour) => {
    upstream.behave(model, (request: UpstreamRequest) => {
      // Long bodies of many requests would use up the memory.
      upstream.requests.length = 0;
      return behaviour(request);
    });
    return { provider: "up", model };
  };
  const [first, second] = [behave("fragile", fragile), behave("steady", answer)];
  const swallowing = new Worker(new URL("./swallowing-upstream.ts", import.meta.url));
  const [port] = (await once(swallowing, "message")) as [number];
  const swallower = {
    id: "swallowing",
    kind: "openai-compatible",
    baseUrl: `http://127.0.0.1:${port}/v1`,
    apiKey: "k",
  };
  const price = { input: 1, output: 1 };
  const models = [
    { id: "fragile", price, routes: [first] },
    { id: "pair", price, routes: [first, second] },
    { id: "long", price, contextWindow: 16_000_000, routes: [{ provider: swallower.id, model: "long" }] },
    { id: "vectors", category: "embedding", price: { input: 1 }, routes: [behave("vectors", embed)] },
  ];
  const server = { maxConnections: CONNECTIONS_MAX, ...(overload && { overload }) };
  const service = await startProcess({
    ...place,
    config: { providers: [upstream.provider, swallower], models, server },
  });
  const { token } = await makeOrganization(service, "1000000");
  const { token: adminToken } = await service.tollgate<{ token: string }>("admin", "token");
  const named = { fragileModel: "fragile", pairModel: "pair", longModel: "long", embeddingModel: "vectors" };
  return {
    service,
    target: { url: service.url, token, adminToken, ...named },
    end: async () => {
      await service.end();
      await upstream.close();
      await swallowing.terminate();
    },
  };
}
