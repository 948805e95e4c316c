import { type ChildProcess, type ExecFileOptions, execFile, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { UsageReport } from "../../src/api/usage.ts";
import type { Printed } from "./hosted-service.ts";

const SOURCE = fileURLToPath(new URL("../../src/main.ts", import.meta.url));
const START_TIMEOUT_MS = 120_000;
/** The line that a start ends with. */
const LAST_LINE = /^curl .*\n/m;

/**
 * Returns the file that a service starts from: of the bundle that the global setup makes of src/, because it starts faster; of
 * the source where no run has made one. A function, because the setup makes the bundle after this module is loaded.
 */
export function mainFile(): string {
  return process.env.TESTED_MAIN ?? SOURCE;
}

export interface ServiceOptions {
  /** The configuration file, as data. Absent: the service starts without one. */
  config?: object;
  /** Kept across restarts. Absent: a new directory, which is removed at the end. */
  dataDir?: string;
  /** A free port by default. */
  port?: number | undefined;
  databaseUrl?: string;
  environment?: Record<string, string>;
}

export interface ProcessOptions extends ServiceOptions {
  /** Folder of the configuration file; `dataDir` by default. */
  configDir?: string;
  /** Checkout of another version that is started instead of this one. */
  checkout?: string | undefined;
  /** A program that runs the service, and its arguments: `nice -n 19`, say. */
  launcher?: string[];
  /** Processes that share the port, as `--workers` starts them. */
  workers?: number;
  /** Path to wait for: `/healthz` needs no store. Absent: waits until it accepts requests and has printed everything. */
  awaits?: "/readyz" | "/healthz";
}

/** A service on a port of its own. */
export interface RunningService {
  url: string;
  baseUrl: string;
  dataDir: string;
  /** Name of its database or, on SQLite, its data directory: services with the same one share their books. */
  store: string;
  /** Everything it has printed. */
  output(): string;
  /** Runs a command while the service runs, and returns the JSON that it prints. */
  tollgate<T = Record<string, unknown>>(...words: string[]): Promise<T>;
  /** Stops it as SIGTERM does. */
  end(): Promise<unknown>;
}

/** A service in a process of its own, as its users run it. */
export interface ServiceProcess extends RunningService {
  child: ChildProcess;
  /** Ends it by a signal; resolves with its exit code. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

export async function makeDirectory(): Promise<string> {
  return mkdtemp(join(tmpdir(), "tollgate-test-"));
}

/** Below the ports that systems give to connections, any of which could take a port that is free only for now. */
const PORTS_FROM = 20_000;
const PORTS_A_WORKER = 2_000;
const WORKERS_MAX = 6;
let portsGiven = randomInt(PORTS_A_WORKER);

/** Returns a free port that no other process of the run gets: each has its own range. */
export async function freePort(): Promise<number> {
  const worker = Number(process.env.VITEST_POOL_ID ?? process.pid) % WORKERS_MAX;
  for (let tries = 0; tries < PORTS_A_WORKER; tries += 1) {
    portsGiven += 1;
    const port = PORTS_FROM + worker * PORTS_A_WORKER + (portsGiven % PORTS_A_WORKER);
    if (await isFree(port)) return port;
  }
  throw new Error("No port is free");
}

function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** Returns the environment of a service or a command: variables of this process that configure neither, and its own. */
export function childEnvironment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const kept = ["PATH", "HOME", "TMPDIR", "LANG", "NODE_COMPILE_CACHE"].map(
    (name) => [name, process.env[name]] as const,
  );
  return { ...Object.fromEntries(kept), NO_COLOR: "1", ...extra };
}

/** Turns off the limit of the event loop's delay, unless a test sets one: on a busy machine it is late without any load. */
function withoutOverload(config: { server?: { overload?: object } }): object {
  return { ...config, server: { overload: { eventLoopDelayMs: 0 }, ...config.server } };
}

interface Settings {
  dataDir: string;
  port: number;
  /** The configuration file, if there is one. */
  file: string | undefined;
  words: string[];
  environment: Record<string, string>;
}

async function prepareService(options: ProcessOptions): Promise<Settings> {
  const dataDir = options.dataDir ?? (await makeDirectory());
  const port = options.port ?? (await freePort());
  const words = ["--data-dir", dataDir];
  let file: string | undefined;
  if (options.config !== undefined) {
    file = join(options.configDir ?? dataDir, "tollgate.yaml");
    await writeFile(file, JSON.stringify(withoutOverload(options.config)));
    words.push("--config", file);
  }
  const environment = { ...options.environment };
  if (options.databaseUrl !== undefined) environment.DATABASE_URL = options.databaseUrl;
  return { dataDir, port, file, words, environment };
}

/**
 * Starts a service in this process, which is faster. Use `startProcess` to test signals, exit codes, memory, overload and
 * workers.
 */
export async function startService(options: ServiceOptions = {}): Promise<RunningService> {
  const { server }: { server?: { overload?: object } } = options.config ?? {};
  if (server?.overload !== undefined || options.environment?.NODE_OPTIONS !== undefined) {
    throw new Error("server.overload and NODE_OPTIONS need a process of their own: use startProcess.");
  }
  const { dataDir, port, file, words, environment } = await prepareService(options);
  let printed = "";
  const host = await loadHost();
  const flags = { dataDir, port: String(port), config: file };
  const stop = await host.hostService({ flags, environment, write: (text) => (printed += text) });
  let ended: Promise<void> | undefined;
  const end = async () => {
    await stop();
    if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
  };
  return {
    ...addressesOf(port, dataDir, options),
    output: () => printed,
    tollgate: async <T>(...more: string[]) => {
      const place = { cwd: dataDir, env: childEnvironment(environment) };
      const printed = await host.runCommand([...more, ...words, "--json"], place);
      return documentOf<T>(more, printed);
    },
    end: () => (ended ??= end()),
  };
}

/** Loads the service and its commands from the build that `startProcess` runs. */
export function loadHost(): Promise<typeof import("./hosted-service.ts")> {
  const main = mainFile();
  if (main === SOURCE) return import("./hosted-service.ts");
  return import(pathToFileURL(join(dirname(main), "hosted-service.js")).href);
}

function addressesOf(port: number, dataDir: string, { databaseUrl }: ServiceOptions) {
  const url = `http://127.0.0.1:${port}`;
  const store = databaseUrl === undefined ? dataDir : new URL(databaseUrl).pathname;
  return { url, baseUrl: `${url}/v1`, dataDir, store };
}

/** Starts a service in a process of its own, and waits until it takes requests. */
export async function startProcess(options: ProcessOptions = {}): Promise<ServiceProcess> {
  const { dataDir, port, words, environment } = await prepareService(options);
  const serveWords = options.workers === undefined ? [] : ["--workers", String(options.workers)];
  const main = options.checkout === undefined ? mainFile() : join(options.checkout, "src", "main.ts");
  const command = [...(options.launcher ?? []), process.execPath, main];
  const [program = "", ...before] = command;
  const place = { env: childEnvironment(environment), cwd: dataDir };
  const child = spawn(program, [...before, "serve", "--port", String(port), ...serveWords, ...words], place);
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (printed += data));
  // Then all that it printed has been read, too.
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  const addresses = addressesOf(port, dataDir, options);
  const hasPrintedAll = () => options.awaits !== undefined || LAST_LINE.test(printed);
  await ready(`${addresses.url}${options.awaits ?? "/readyz"}`, child, { hasPrintedAll, printed: () => printed });
  return {
    ...addresses,
    child,
    output: () => printed,
    tollgate: async <T>(...more: string[]) =>
      documentOf<T>(more, await runTollgate(command, [...more, ...words], place)),
    end: async (signal = "SIGTERM") => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      const code = await exited;
      if (options.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
      return code;
    },
  };
}

async function ready(
  probe: string,
  child: ChildProcess,
  { hasPrintedAll, printed }: { hasPrintedAll: () => boolean; printed: () => string },
): Promise<void> {
  const until = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < until && child.exitCode === null && child.signalCode === null) {
    // Until it has printed everything, a question would only take processor time.
    if (hasPrintedAll() && (await statusOf(probe).catch(() => undefined)) === 200) return;
    await sleep(25);
  }
  child.kill("SIGKILL");
  throw new Error(`The service did not start:\n${printed()}`);
}

async function statusOf(url: string): Promise<number> {
  const answer = await fetch(url);
  await answer.arrayBuffer();
  return answer.status;
}

type Place = Required<Pick<ExecFileOptions, "env" | "cwd">>;

/** Runs a command in a process of its own. */
function runTollgate(command: string[], words: string[], place: Place): Promise<Printed> {
  const [program = "", ...before] = command;
  return new Promise((resolve) => {
    execFile(program, [...before, ...words, "--json"], place, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), stdout, stderr });
    });
  });
}

/** Returns the JSON document that a command has printed. Throws its standard error if it has failed. */
function documentOf<T>(words: string[], { code, stdout, stderr }: Printed): T {
  if (code !== 0) throw new Error(`tollgate ${words.join(" ")}: ${stderr}${stdout}`);
  return JSON.parse(stdout) as T;
}

export interface Organization {
  id: string;
  token: string;
  tokenId: string;
}

/** Scopes of a token whose holder can sign in to the console. */
export const MEMBER_SCOPES = ["chat.completions:write", "models:read", "usage:read", "console:read"];

/** Terms of a token, in the fields of the admin API. */
interface TokenTerms {
  name?: string;
  scopes?: string[];
  models?: string[];
  cap?: number;
  expires_at?: string;
  limits?: object;
  pinned?: object;
}

/** Creates an organization with credits and a token, through the admin API: a command would take a process of its own. */
export async function makeOrganization(
  service: RunningService,
  credits: string,
  terms: TokenTerms = {},
): Promise<Organization> {
  const { id } = await create(service, "/organizations", { name: "Test" });
  if (Number(credits) > 0) await create(service, `/organizations/${id}/grants`, { amount: Number(credits) });
  return { id, ...(await makeToken(service, id, terms)) };
}

/**
 * Creates an organization with two budgets that cover every request, so that the counters of each add up to the balance. They
 * are worth more than all requests need.
 */
export async function makeBudgeted(service: RunningService, credits: string): Promise<Organization> {
  const organization = await makeOrganization(service, credits);
  const path = `/organizations/${organization.id}/budgets`;
  await create(service, path, { name: "All", window: "lifetime", amount: 1_000_000 });
  await create(service, path, { name: "Each", window: "day", each: "token", amount: 1_000_000 });
  return organization;
}

export async function makeToken(service: RunningService, organizationId: string, terms: TokenTerms = {}) {
  const made = await create(service, "/tokens", { organization_id: organizationId, name: "unnamed", ...terms });
  return { token: made.secret, tokenId: made.id };
}

async function create(
  service: RunningService,
  path: string,
  body: Record<string, unknown>,
): Promise<{ id: string; secret: string }> {
  const answer = await send(service, `/admin/v1${path}`, await adminTokenOf(service), body);
  if (answer.status !== 201) throw new Error(`${path} was answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as { id: string; secret: string };
}

/** Admin tokens by store. A new one ends those before it, so each store gets one. */
const adminTokens = new Map<string, Promise<string>>();

/** Returns the admin token that a store's first start has written to its data directory, or a new one if there is none. */
async function adminTokenOf({ dataDir, store, output, tollgate }: RunningService): Promise<string> {
  while (!LAST_LINE.test(output())) await sleep(5);
  const file = join(dataDir, "admin-token");
  if (existsSync(file)) adminTokens.set(store, Promise.resolve((await readFile(file, "utf8")).trim()));
  const known = adminTokens.get(store);
  if (known !== undefined) return known;
  const made = tollgate<{ token: string }>("admin", "token").then(({ token }) => token);
  adminTokens.set(store, made);
  return made;
}

/** Sends a request with a token and a JSON body. */
export async function send(
  service: Pick<RunningService, "url">,
  path: string,
  token: string | null,
  body?: unknown,
  options: RequestInit = {},
): Promise<Response> {
  return fetch(`${service.url}${path}`, {
    method: body === undefined ? "GET" : "POST",
    ...options,
    headers: {
      ...(token !== null && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { "content-type": "application/json" }),
      ...options.headers,
    },
    body: body === undefined || typeof body === "string" ? (body as string) : JSON.stringify(body),
  });
}

/** Returns the credits of the organization that a token belongs to. */
export async function usageOf(service: Pick<RunningService, "url">, token: string): Promise<UsageReport> {
  return (await (await send(service, "/v1/usage", token)).json()) as UsageReport;
}

/** Waits until nothing is held, and returns the credits. */
export async function settledUsage(service: Pick<RunningService, "url">, token: string): Promise<UsageReport> {
  // At longer and longer intervals: what is held by a killed service stays so for many seconds.
  for (let waitMs = 20; ; waitMs = Math.min(2 * waitMs, 1_000)) {
    const usage = await usageOf(service, token);
    if (usage.creditsHeld === 0) return usage;
    await sleep(waitMs);
  }
}

/** Returns the events of a streamed answer as they were sent, without `data: `. */
export function eventsOf(text: string): string[] {
  return text
    .split("\n\n")
    .filter((event) => event.startsWith("data: "))
    .map((event) => event.slice("data: ".length));
}
