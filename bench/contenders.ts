import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { EndpointName } from "./endpoints.ts";
import { freePort, type Processes, type Program } from "./processes.ts";
import type { Target } from "./round.ts";
import { gatewayOf, nginxVersion, startNginx } from "./upstreams.ts";

const here = dirname(fileURLToPath(import.meta.url));

/** A gateway that is measured: its processes, and how it is called. */
export interface Contender {
  name: string;
  program: Program;
  /** Processes whose time counts: its own, and those of its database server. */
  pids: number[];
  /** Returns where its requests go; undefined for an endpoint that it does not serve. */
  address(endpoint: EndpointName, streamed: boolean): Pick<Target, "url" | "headers"> | undefined;
  /** Returns the books after the run; a proxy has none. */
  audit?(): Promise<Audit>;
}

/** The books of all organizations. */
export interface Audit {
  /** True if they balance. */
  ok: boolean;
  /** Number of answers that were charged. */
  charges: number;
  chargedMicroCredits: number;
  heldMicroCredits: number;
}

/** Starts a gateway that Tollgate is compared with. */
type Start = (processes: Processes, upstream: string, folder: string) => Promise<Contender>;

/** Returns how a proxy is started that is a program of this folder. */
const proxy =
  (name: string, file: string): Start =>
  async (processes, upstream) => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const command = [process.execPath, join(here, file), new URL(url).port, upstream];
    return proxyOf(name, await processes.start(file, command, `${url}/ready`), url);
  };

function proxyOf(name: string, program: Program, url: string): Contender {
  const headers = [{ "content-type": "application/json", authorization: "Bearer bench" }];
  return {
    name,
    program,
    pids: [program.pid],
    address: (endpoint, streamed) =>
      endpoint === "chat" ? { url: `${url}${streamed ? "/streamed" : ""}/v1/chat/completions`, headers } : undefined,
  };
}

async function startGatewayOfNginx(processes: Processes, upstream: string, folder: string): Promise<Contender> {
  if (nginxVersion() === undefined) throw new Error("nginx is not installed");
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const place = { name: "gateway", folder, url: `${url}/ready` };
  return proxyOf("nginx", await startNginx(processes, place, gatewayOf(port, upstream)), url);
}

/** Starts Portkey's gateway as its guide does. Headers name its upstream. */
async function startPortkey(processes: Processes, upstream: string): Promise<Contender> {
  const url = `http://127.0.0.1:${await freePort()}`;
  const file = join(here, "node_modules", "@portkey-ai", "gateway", "build", "start-server.js");
  const program = await processes.start("portkey", [process.execPath, file, `--port=${new URL(url).port}`], url);
  return {
    name: "Portkey",
    program,
    pids: [program.pid],
    address: (endpoint, streamed) => {
      const headers = {
        "content-type": "application/json",
        authorization: "Bearer bench",
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": `${upstream}${streamed ? "/streamed" : ""}/v1`,
      };
      return endpoint === "chat" ? { url: `${url}/v1/chat/completions`, headers: [headers] } : undefined;
    },
  };
}

/** The gateways that Tollgate is compared with, by the names that `--contenders` takes. */
export const OTHERS: Record<string, Start> = {
  node: proxy("bare node:http", "bare-node.ts"),
  fastify: proxy("bare Fastify", "bare-fastify.ts"),
  parsing: proxy("parsing Fastify", "parsing-fastify.ts"),
  nginx: startGatewayOfNginx,
  portkey: startPortkey,
};

/** Returns the facts about the machine that the figures depend on. */
export function machineFacts(): string {
  const [processor] = cpus();
  return `${cpus().length} cores (${processor?.model.trim() || "unknown processor"}), Node ${process.versions.node}`;
}
