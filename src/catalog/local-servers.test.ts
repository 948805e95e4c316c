import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { freePort } from "../../test/support/service.ts";
import { LOCAL_SERVERS, type LocalServer } from "../providers/local-servers.ts";
import { findServers } from "./local-servers.ts";

type Answer = { status?: number; text?: string; json?: unknown; silent?: true };

const open: Server[] = [];

afterEach(async () => {
  for (const server of open.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** A server on a port of its own that answers by path; what it was asked is in `asked`. */
async function serve(id: string, answers: Record<string, Answer>): Promise<LocalServer & { asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const { model } = body === "" ? {} : JSON.parse(body);
      const path = `${request.url}${model === undefined ? "" : ` ${model}`}`;
      asked.push(path);
      const answer = answers[path] ?? { status: 404, json: { error: "none" } };
      if (answer.silent) return;
      response.writeHead(answer.status ?? 200, { "content-type": "application/json" });
      response.end(answer.text ?? JSON.stringify(answer.json));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open.push(server);
  const { port } = server.address() as AddressInfo;
  return { id, name: id, kind: "openai-compatible", baseUrl: `http://127.0.0.1:${port}/v1`, asked };
}

const list = (...data: unknown[]): Answer => ({ json: { object: "list", data } });
const find = (servers: LocalServer[], timeoutMs = 60_000, ownPort = 1) => findServers(servers, { ownPort, timeoutMs });
/** Time to wait for servers that never answer. All others have answered by then, also on a busy machine. */
const SOON_MS = 2_000;

test("The default ports are those of the servers' documentation.", () => {
  expect(LOCAL_SERVERS.map(({ id, baseUrl }) => [id, baseUrl])).toEqual([
    ["ollama", "http://127.0.0.1:11434/v1"],
    ["lmstudio", "http://127.0.0.1:1234/v1"],
    ["llamacpp", "http://127.0.0.1:8080/v1"],
    ["vllm", "http://127.0.0.1:8000/v1"],
  ]);
});

describe("A server is found", () => {
  test("with its models and the context windows that vLLM and llama.cpp report.", async () => {
    const vllm = await serve("vllm", {
      "/v1/models": list({ id: "org/model", object: "model", max_model_len: 16_384 }),
    });
    const llama = await serve("llamacpp", {
      "/v1/models": list(
        { id: "a.gguf", meta: { n_ctx_train: 131_072, n_ctx: 4_096 } },
        { id: "b", meta: { n_ctx_train: 2_048 } },
      ),
    });
    const found = await find([vllm, llama]);
    expect(found.map(({ id, models }) => [id, models])).toEqual([
      ["vllm", [{ name: "org/model", contextWindow: 16_384 }]],
      [
        "llamacpp",
        [
          { name: "a.gguf", contextWindow: 4_096 },
          { name: "b", contextWindow: 2_048 },
        ],
      ],
    ]);
  });

  test("with the dates and capabilities that Ollama reports, and not the models that do neither chat nor embed.", async () => {
    const ollama = await serve("ollama", {
      "/v1/models": list({ id: "llama:8b" }, { id: "nomic" }, { id: "painter" }, { id: "old" }),
      "/api/tags": {
        json: { models: [{ name: "llama:8b", modified_at: "2025-03-04T23:30:00-05:00" }, { name: "old" }] },
      },
      "/api/show llama:8b": {
        json: {
          capabilities: ["completion", "tools", "vision", "thinking"],
          model_info: { "llama.context_length": 131_072 },
        },
      },
      "/api/show nomic": {
        json: {
          capabilities: ["embedding"],
          model_info: { "nomic-bert.context_length": 2_048, "nomic-bert.embedding_length": 768 },
        },
      },
      "/api/show painter": { json: { capabilities: ["image"] } },
    });
    const [found] = await find([ollama]);
    expect(found?.models).toEqual([
      {
        name: "llama:8b",
        fileDate: "2025-03-05",
        contextWindow: 131_072,
        can: ["structured_output", "tools", "vision", "reasoning"],
      },
      { name: "nomic", contextWindow: 2_048, embedding: { dimensions: 768 } },
      { name: "old" },
    ]);
  });

  test("with the types and capabilities that LM Studio reports.", async () => {
    const studio = await serve("lmstudio", {
      "/v1/models": list({ id: "seer" }, { id: "embedder" }, { id: "plain" }),
      "/api/v0/models": {
        json: {
          data: [
            { id: "seer", type: "vlm", max_context_length: 32_768, capabilities: ["tool_use"] },
            { id: "embedder", type: "embeddings", max_context_length: 512 },
            { id: "plain", type: "llm", max_context_length: 131_072, loaded_context_length: 4_096 },
          ],
        },
      },
    });
    const [found] = await find([studio]);
    expect(found?.models).toEqual([
      { name: "seer", contextWindow: 32_768, can: ["structured_output", "tools", "vision"] },
      { name: "embedder", contextWindow: 512, embedding: {} },
      { name: "plain", contextWindow: 4_096, can: ["structured_output"] },
    ]);
  });

  test("without models, and without names that are not valid ids.", async () => {
    const empty = await serve("vllm", { "/v1/models": list() });
    const odd = await serve("llamacpp", {
      "/v1/models": list({ id: "a b" }, { id: "x\n" }, { id: "fine" }, { id: "fine" }),
    });
    const found = await find([empty, odd]);
    expect(found.map(({ models }) => models.map(({ name }) => name))).toEqual([[], ["fine"]]);
  });
});

describe("No server is found", () => {
  const answers: [string, Answer][] = [
    ["text that is not JSON", { text: "<html>hello</html>" }],
    ["half of a document", { text: '{"object":"list","data":[' }],
    ["a list of another kind", { json: { object: "collection", data: [{ id: "a" }] } }],
    ["no list", { json: { object: "list", data: { id: "a" } } }],
    ["entries without an id", { json: { object: "list", data: [{ id: "a" }, { name: "b" }] } }],
    ["null", { json: null }],
    ["an error", { status: 401, json: { error: "no key" } }],
    ["a redirect", { status: 302, json: { object: "list", data: [{ id: "a" }] } }],
    ["a document without end", { text: `{"object":"list","data":[{"id":"${"x".repeat(5_000_000)}"}]}` }],
    ["a Tollgate", { json: { object: "list", data: [{ id: "gpt-5" }, { id: "sandbox/echo", owned_by: "tollgate" }] } }],
  ];

  test.each(answers)("if the answer is %s.", async (_name, answer) => {
    const server = await serve("vllm", { "/v1/models": answer });
    expect(await find([server])).toEqual([]);
    expect(server.asked).toEqual(["/v1/models"]);
  });

  test("if nothing listens.", async () => {
    const baseUrl = `http://127.0.0.1:${await freePort()}/v1`;
    expect(await find([{ id: "vllm", name: "vllm", kind: "openai-compatible", baseUrl }])).toEqual([]);
  });

  test("on the service's own port, which is not called.", async () => {
    const server = await serve("vllm", { "/v1/models": list({ id: "a" }) });
    expect(await find([server], 60_000, Number(new URL(server.baseUrl).port))).toEqual([]);
    expect(server.asked).toEqual([]);
  });

  test("if no answer arrives in time, but the others are found.", async () => {
    const silent = await serve("vllm", { "/v1/models": { silent: true } });
    const quick = await serve("llamacpp", { "/v1/models": list({ id: "a" }) });
    const found = await find([silent, quick], SOON_MS);
    expect(found.map(({ id }) => id)).toEqual(["llamacpp"]);
  });
});

test("A server without details is found with the data of its model list.", async () => {
  const ollama = await serve("ollama", { "/v1/models": list({ id: "a" }), "/api/tags": { silent: true } });
  const [found] = await find([ollama], SOON_MS);
  expect(found?.models).toEqual([{ name: "a" }]);
});
