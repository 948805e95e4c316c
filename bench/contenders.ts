import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  EMBEDDING_ANSWER,
  EMBEDDING_BASE64_ANSWER,
  EMBEDDING_PRICE,
  EMBEDDING_WIRES,
  EVENTS_DEFAULT,
  isEmbeddings,
  MODEL_EMBEDDING,
  MODEL_EMBEDDING_BASE64,
  MODEL_STREAMED,
  MODEL_UNSTREAMED,
  PRICE,
  streamedEvents,
  UNSTREAMED_ANSWER,
  type Wire,
} from "./payload.ts";
import { freePort, type Processes, run } from "./processes.ts";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const CREDITS = "10000000";

/** A gateway that is measured: where it listens, and how it is called. */
export interface Contender {
  name: string;
  wire: Wire;
  /** Returns the processor time that its process has used so far, in milliseconds; undefined where the system does not say. */
  processorMs(): number | undefined;
  url(streamed: boolean): string;
  headers(streamed: boolean): Record<string, string>;
}

export interface Tollgate extends Contender {
  /** The books after the run: whether they balance, and what was charged in micro-credits. */
  audit(): Promise<{ ok: boolean; chargedMicroCredits: number; heldMicroCredits: number }>;
}

/** Events of a streamed answer, and the milliseconds between two of them; 0: they are sent at once. */
export interface Pace {
  events: number;
  apartMs: number;
}

/**
 * Starts the upstream: nginx if it is installed and events are sent at once, otherwise a bare Node server. Returns its
 * address and its name.
 */
export async function startUpstream(
  processes: Processes,
  folder: string,
  { events, apartMs }: Pace = { events: EVENTS_DEFAULT, apartMs: 0 },
): Promise<{ url: string; name: string }> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const nginx = spawnSync("nginx", ["-v"], { encoding: "utf8" });
  if (nginx.status !== 0 || apartMs > 0) {
    const words = [join(here, "upstream.ts"), ...[port, events, apartMs].map(String)];
    await processes.start("upstream", process.execPath, words, url);
    return { url, name: "a bare Node server" };
  }
  const file = writeNginxConfiguration(folder, port, events);
  await processes.start("upstream", "nginx", ["-p", folder, "-c", file, "-g", "daemon off;"], url);
  return { url, name: (nginx.stderr + nginx.stdout).trim().replace(/^nginx version: /, "") };
}

/** nginx serves files to GET only: the 405 of a POST is turned into the file, with 200. */
function writeNginxConfiguration(folder: string, port: number, events: number): string {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  const file = join(folder, "nginx.conf");
  const answers = join(folder, "nginx", "answers");
  mkdirSync(answers, { recursive: true });
  writeFileSync(join(answers, "unstreamed"), UNSTREAMED_ANSWER);
  writeFileSync(join(answers, "embedding"), EMBEDDING_ANSWER);
  writeFileSync(join(answers, "base64"), EMBEDDING_BASE64_ANSWER);
  writeFileSync(join(answers, "streamed"), streamedEvents(events).join(""));
  writeFileSync(
    file,
    // Its workers would be another user, to whom the folder is closed.
    `${process.getuid?.() === 0 ? "user root;" : ""}
worker_processes 1;
pid nginx/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  open_file_cache max=10 inactive=1h;
  open_file_cache_valid 1h;
  ${temporary.map((name) => `${name}_temp_path nginx/${name};`).join("\n  ")}
  server {
    listen 127.0.0.1:${port};
    root ${answers};
    location / { error_page 405 =200 /unstreamed; try_files /unstreamed =404; }
    location /streamed/ { error_page 405 =200 /streamed; try_files /streamed =404; }
    location = /v1/embeddings { error_page 405 =200 /embedding; try_files /embedding =404; }
    location = /base64/v1/embeddings { error_page 405 =200 /base64; try_files /base64 =404; }
    location = /embedding { default_type application/json; }
    location = /base64 { default_type application/json; }
    location = /unstreamed { default_type application/json; }
    location = /streamed { default_type text/event-stream; }
  }
}
`,
  );
  return file;
}

/** Starts a proxy on Fastify and undici: one that passes bytes, or one that parses and serializes what it forwards. */
export async function startProxy(kind: "bare" | "parsing", processes: Processes, upstream: string): Promise<Contender> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const program = `${kind}-proxy`;
  const words = [join(here, `${program}.ts`), new URL(url).port, upstream];
  await processes.start(program, process.execPath, words, `${url}/ready`);
  return {
    name: `${kind} proxy`,
    wire: "chat",
    processorMs: () => processes.processorMs(program),
    url: (streamed) => `${url}${streamed ? "/streamed" : ""}/v1/chat/completions`,
    headers: () => ({ "content-type": "application/json", authorization: "Bearer bench" }),
  };
}

/** Starts Portkey's gateway as its guide does. Headers name its upstream. */
export async function startPortkey(processes: Processes, upstream: string): Promise<Contender> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const program = join(here, "node_modules", "@portkey-ai", "gateway", "build", "start-server.js");
  await processes.start("portkey", process.execPath, [program, `--port=${new URL(url).port}`], url);
  return {
    name: "Portkey",
    wire: "chat",
    processorMs: () => processes.processorMs("portkey"),
    url: () => `${url}/v1/chat/completions`,
    headers: (streamed) => ({
      "content-type": "application/json",
      authorization: "Bearer bench",
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `${upstream}${streamed ? "/streamed" : ""}/v1`,
    }),
  };
}

/**
 * Tollgate as it is run: its own process, SQLite with durable commits, logging as by default, limits out of reach. Of
 * this checkout, of another one, or of an installed package.
 */
export async function startTollgate(
  processes: Processes,
  upstream: string,
  folder: string,
  { name, checkout }: { name: string; checkout: string } = { name: "Tollgate", checkout: root },
): Promise<Tollgate> {
  const url = `http://127.0.0.1:${await freePort()}`;
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "tollgate.yaml");
  writeFileSync(file, JSON.stringify(tollgateConfiguration(upstream), undefined, 2));
  const main = join(checkout, "bin", "tollgate.js");
  const common = ["--config", file, "--data-dir", join(folder, "data")];
  const port = new URL(url).port;
  const processName = name.replaceAll(" ", "-");
  await processes.start(processName, process.execPath, [main, "serve", "--port", port, ...common], `${url}/readyz`);
  const command = async <T>(...words: string[]): Promise<T> =>
    JSON.parse(await run(process.execPath, [main, ...words, ...common, "--json"])) as T;
  const { id } = await command<{ id: string }>("org", "create", "Bench", "--credits", CREDITS);
  const { token } = await command<{ token: string }>("token", "create", "--org", id);
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
  return {
    name,
    wire: "chat",
    processorMs: () => processes.processorMs(processName),
    url: () => `${url}/v1/chat/completions`,
    headers: () => headers,
    audit: async () => {
      const usage = (await (await fetch(`${url}/v1/usage`, { headers })).json()) as Record<string, number>;
      const micro = (credits: number | undefined) => Math.round((credits ?? Number.NaN) * 1e6);
      const { ok } = await command<{ ok: boolean }>("ledger", "verify");
      return { ok, chargedMicroCredits: micro(usage.creditsUsed), heldMicroCredits: micro(usage.creditsHeld) };
    },
  };
}

/** Returns the same service, called on its other inbound wires. */
export function otherWires({ name, ...service }: Tollgate): Contender[] {
  const chatUrl = service.url(false);
  return (["responses", "messages", ...EMBEDDING_WIRES] as const).map((wire) => {
    const path = isEmbeddings(wire) ? "embeddings" : wire;
    return { ...service, wire, name: `${name}, ${wire}`, url: () => chatUrl.replace("chat/completions", path) };
  });
}

function tollgateConfiguration(upstream: string): object {
  const provider = (id: string, baseUrl: string) => ({ id, kind: "openai-compatible", baseUrl, apiKey: "bench" });
  const model = (id: string, from: string) => ({
    id,
    routes: [{ provider: from, model: "upstream-model" }],
    price: PRICE,
    contextWindow: 128_000,
    cutoffDate: "2026-01-01",
  });
  const embedding = (id: string, from: string) => ({
    id,
    category: "embedding",
    routes: [{ provider: from, model: "upstream-model" }],
    // Older checkouts demand a price of the output.
    price: { ...EMBEDDING_PRICE, output: "0" },
    contextWindow: 8_192,
  });
  const most = 1_000_000_000;
  return {
    limits: { requestsPerMinute: most, tokensPerMinute: most, concurrentRequests: 10_000 },
    providers: [
      provider("unstreamed", `${upstream}/v1`),
      provider("streamed", `${upstream}/streamed/v1`),
      provider("base64", `${upstream}/base64/v1`),
    ],
    models: [
      model(MODEL_UNSTREAMED, "unstreamed"),
      model(MODEL_STREAMED, "streamed"),
      embedding(MODEL_EMBEDDING, "unstreamed"),
      embedding(MODEL_EMBEDDING_BASE64, "base64"),
    ],
  };
}

/** Returns the facts about the machine that the figures depend on. */
export function machineFacts(): string {
  const [processor] = cpus();
  return `${cpus().length} cores (${processor?.model.trim() || "unknown processor"}), Node ${process.versions.node}`;
}
