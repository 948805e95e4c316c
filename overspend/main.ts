/**
 * `node main.ts --target URL [options]`: measures whether a gateway delivers more than was paid for, charges twice or not at
 * all. See README.md. Exit code 0 if nothing was wrong, 1 if something was, 2 for a wrong use.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Bench } from "./bench.ts";
import { readDescription } from "./description.ts";
import { type Account, BenchmarkError, Gateway, type GatewayDescription, urlBelow } from "./gateway.ts";
import { GatewayProcess, type ProcessChoice } from "./process.ts";
import { type Report, reportOf, type TrialReport, toJsonText, toTable } from "./report.ts";
import { type AnswerSource, sandboxSource, upstreamSource } from "./source.ts";
import { chargesByIntent, describeTollgate, markOf, pricesOf, SANDBOX_PRICES, versionOf } from "./tollgate.ts";
import { TRIALS, type Trial } from "./trials.ts";
import { ScriptedUpstream } from "./upstream.ts";

const TOKEN_FILE_LIMIT_MS = 30_000;
const TOKEN_FILE_INTERVAL_MS = 50;

const USAGE = `Usage: overspend --target URL [options]
  --target URL             address of the gateway, without /v1
  --node URL               another node of the same gateway, which takes its share of the requests; may be repeated
  --adapter NAME|FILE      tollgate (default), or a JSON file that describes another gateway
  --admin-token TOKEN      token of the gateway's administration
  --admin-token-file FILE  the same, in a file that is read when it is needed
  --model ID               model that leads to the benchmark's upstream (default: overspend)
  --upstream HOST:PORT     address on which the benchmark's upstream listens (default: 127.0.0.1:8499)
  --command COMMAND        starts the gateway; needed for kills, as --pid-file is
  --pid-file FILE          process id of the gateway, which something else starts again after a kill
  --trials NAMES           only these, separated by commas: ${TRIALS.map(({ name }) => name).join(", ")}
  --requests N             requests at once, 2 to 1000 (default: 40)
  --rounds N               kills, 1 to 100 (default: 6)
  --seconds N              no trial begins after this time (default: 600)
  --allow-host NAME        permits a target that is not this machine
  --log FILE               writes what the upstream emitted and the clients received, as JSON Lines
  --json                   prints one JSON document instead of a table`;

const OPTIONS = {
  target: { type: "string" },
  node: { type: "string", multiple: true, default: [] as string[] },
  adapter: { type: "string", default: "tollgate" },
  "admin-token": { type: "string" },
  "admin-token-file": { type: "string" },
  model: { type: "string" },
  upstream: { type: "string", default: "127.0.0.1:8499" },
  command: { type: "string" },
  "pid-file": { type: "string" },
  trials: { type: "string" },
  requests: { type: "string", default: "40" },
  rounds: { type: "string", default: "6" },
  seconds: { type: "string", default: "600" },
  "allow-host": { type: "string" },
  log: { type: "string" },
  json: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
} as const;

interface Order {
  target: URL;
  /** Other nodes of the gateway. */
  nodes: readonly URL[];
  allowedHost: string | undefined;
  /** Path of a description; undefined for Tollgate. */
  file: string | undefined;
  adminToken: { token: string } | { file: string };
  model: string | undefined;
  upstream: { host: string; port: number };
  process: ProcessChoice | undefined;
  trials: readonly Trial[];
  requests: number;
  rounds: number;
  seconds: number;
  log: string | undefined;
  json: boolean;
}

/** Receives the result of a run, and what was wrong with its use. */
export type Output = Pick<Console, "log" | "error">;

/** Runs the benchmark with the words of a command line; resolves with the exit code. */
export async function runOverspend(words: string[], output: Output = console): Promise<number> {
  try {
    const order = readOrder(words);
    if (order === "help") {
      output.log(USAGE);
      return 0;
    }
    const report = await measure(order);
    output.log(order.json ? toJsonText(report) : toTable(report));
    return report.ok ? 0 : 1;
  } catch (error) {
    if (!(error instanceof BenchmarkError)) throw error;
    output.error(error.message);
    return 2;
  }
}

function readOrder(words: string[]): Order | "help" {
  const values = readWords(words);
  if (values.help) return "help";
  if (values.target === undefined) throw new BenchmarkError(`--target is missing.\n${USAGE}`);
  const allowedHost = values["allow-host"];
  const target = readUrl("--target", values.target, allowedHost);
  const nodes = values.node.map((node) => readUrl("--node", node, allowedHost));
  const { command, "pid-file": pidFile, "admin-token": token, "admin-token-file": tokenFile } = values;
  if (command !== undefined && pidFile !== undefined)
    throw new BenchmarkError("Use --command or --pid-file, not both.");
  if (token !== undefined && tokenFile !== undefined) {
    throw new BenchmarkError("Use --admin-token or --admin-token-file, not both.");
  }
  const isTollgate = values.adapter === "tollgate";
  if (isTollgate && token === undefined && tokenFile === undefined) {
    throw new BenchmarkError("The adapter tollgate needs --admin-token or --admin-token-file.");
  }
  return {
    ...{ target, nodes, allowedHost },
    file: isTollgate ? undefined : values.adapter,
    adminToken: tokenFile === undefined ? { token: token ?? "" } : { file: tokenFile },
    model: values.model,
    upstream: readAddress(values.upstream),
    process: command !== undefined ? { command } : pidFile !== undefined ? { pidFile } : undefined,
    trials: readTrials(values.trials),
    requests: readCount("--requests", values.requests, 2, 1_000),
    rounds: readCount("--rounds", values.rounds, 1, 100),
    seconds: readCount("--seconds", values.seconds, 1, 86_400),
    log: values.log,
    json: values.json,
  };
}

function readWords(words: string[]) {
  try {
    return parseArgs({ args: words, options: OPTIONS }).values;
  } catch (error) {
    throw new BenchmarkError(`${(error as Error).message}\n${USAGE}`);
  }
}

function readUrl(option: string, text: string, allowedHost: string | undefined): URL {
  if (!URL.canParse(text)) {
    throw new BenchmarkError(`${option}: found ${text}; allowed: an address such as http://127.0.0.1:8484.`);
  }
  const target = new URL(text);
  if (target.protocol !== "http:" && target.protocol !== "https:") {
    throw new BenchmarkError(`${option}: found ${target.protocol}; allowed: http: and https:.`);
  }
  checkHost(target, allowedHost);
  return target;
}

/** Throws BenchmarkError if an address leads to another machine that is not allowed. */
function checkHost({ hostname }: URL, allowedHost: string | undefined): void {
  const isAddress = isIP(hostname) === 4 && hostname.startsWith("127.");
  if (isAddress || hostname === "localhost" || hostname === "[::1]" || hostname === allowedHost) return;
  throw new BenchmarkError(
    `${hostname} is another machine. Measure only what is yours, with --allow-host ${hostname}.`,
  );
}

function readAddress(text: string): { host: string; port: number } {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:\s]+)):(\d{1,5})$/i.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port) > 65_535) {
    throw new BenchmarkError(`--upstream: found ${text}; allowed: an address and a port, such as 127.0.0.1:8499.`);
  }
  return { host, port: Number(port) };
}

function readTrials(text: string | undefined): readonly Trial[] {
  if (text === undefined) return TRIALS;
  return text.split(",").map((name) => {
    const trial = TRIALS.find((one) => one.name === name);
    if (trial !== undefined) return trial;
    throw new BenchmarkError(`--trials: found ${name}; allowed: ${TRIALS.map((one) => one.name).join(", ")}.`);
  });
}

function readCount(option: string, text: string, least: number, most: number): number {
  const count = Number(text);
  if (/^\d+$/.test(text) && count >= least && count <= most) return count;
  throw new BenchmarkError(`${option}: found ${text}; allowed: a whole number from ${least} to ${most}.`);
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new BenchmarkError(`${file} cannot be read: ${(error as Error).message}`);
  }
}

async function measure(order: Order): Promise<Report> {
  const startedAt = new Date();
  const upstream = new ScriptedUpstream();
  const description = descriptionFor(order);
  const readyUrl = urlBelow(order.target, description.readyPath);
  const process = order.process === undefined ? undefined : new GatewayProcess(order.process, readyUrl);
  try {
    await process?.start();
    const gateway = new Gateway(description, order.target, await adminTokenOf(order));
    const { ready, source, version, from } = await prepare(order, gateway, upstream);
    const isTollgate = order.file === undefined;
    const books = isTollgate
      ? {
          mark: markOf,
          chargesByIntent: (account: Account) => chargesByIntent(ready, account),
        }
      : undefined;
    const { requests, rounds } = order;
    const nodes = [order.target, ...order.nodes];
    const bench = new Bench({ gateway: ready, source, books, process, nodes, requests, rounds });
    if (from === "upstream") await checkRoute(bench, order);
    const trials = await playTrials(bench, order, startedAt.getTime());
    const report = reportOf(trials, {
      ...{ target: order.target.origin, adapter: ready.description.name, version, answers_from: from },
      ...{ started_at: startedAt.toISOString(), seconds: Math.round((Date.now() - startedAt.getTime()) / 1000) },
    });
    if (order.log !== undefined) writeFileSync(order.log, logOf(bench, upstream));
    return report;
  } finally {
    await process?.end();
    await upstream.close();
  }
}

function descriptionFor({ file, model, allowedHost }: Order): GatewayDescription {
  const description =
    file === undefined ? describeTollgate(model ?? "overspend", SANDBOX_PRICES) : readDescription(readText(file), file);
  if (description.adminUrl !== undefined) checkHost(description.adminUrl, allowedHost);
  return { ...description, ...(model !== undefined && { model }) };
}

/** Returns the token of the administration. A first start may write its file a moment after the gateway is ready. */
async function adminTokenOf({ adminToken }: Order): Promise<string> {
  if ("token" in adminToken) return adminToken.token;
  const untilMs = Date.now() + TOKEN_FILE_LIMIT_MS;
  while (!existsSync(adminToken.file) && Date.now() < untilMs) await sleep(TOKEN_FILE_INTERVAL_MS);
  return readText(adminToken.file).trim();
}

interface Prepared {
  ready: Gateway;
  source: AnswerSource;
  version: string | null;
  from: "upstream" | "sandbox";
}

/** Finds out which models there are: Tollgate without a model for the benchmark has its sandbox models. */
async function prepare(order: Order, gateway: Gateway, upstream: ScriptedUpstream): Promise<Prepared> {
  const { file, target } = order;
  let { description } = gateway;
  let version: string | null = null;
  if (file === undefined) {
    version = await versionOf(gateway);
    const account = await gateway.createAccount("overspend: prices", 1n);
    const prices = await pricesOf(gateway, account, description.model);
    if (prices === undefined && order.model !== undefined) {
      throw new BenchmarkError(`${target.origin} has no model ${description.model}.`);
    }
    if (prices === undefined) return { ready: gateway, source: sandboxSource(), version, from: "sandbox" };
    description = describeTollgate(description.model, prices);
  }
  try {
    await upstream.listen(order.upstream.host, order.upstream.port);
  } catch (error) {
    throw new BenchmarkError(`The upstream cannot listen at its address: ${(error as Error).message}`);
  }
  const { model, prices, counting } = description;
  const source = upstreamSource(upstream, model, { prices, counting });
  return { ready: gateway.describedAs(description), source, version, from: "upstream" };
}

/** Throws BenchmarkError if the model does not lead to the benchmark's upstream. */
async function checkRoute(bench: Bench, { upstream: { host, port } }: Order): Promise<void> {
  const { model } = bench.options.gateway.description;
  const tokens = 1;
  const tab = await bench.open("route", 2n * bench.priceAtMost(tokens));
  const script = { tokens, acts: [{ kind: "answer" }] as const };
  const missing = await bench.play(tab, { name: "route", streamed: false, script });
  if (missing === undefined) return;
  const address = `http://${host}:${port}/v1`;
  throw new BenchmarkError(`The model ${model} must lead to the upstream ${address}: ${missing.reason}.`);
}

async function playTrials(bench: Bench, { trials, seconds }: Order, startedMs: number): Promise<TrialReport[]> {
  const reports: TrialReport[] = [];
  for (const trial of trials) {
    const { name, title } = trial;
    const late = Date.now() - startedMs > seconds * 1000 ? `the ${seconds} s of --seconds were over` : undefined;
    const refusal = late ?? trial.refusal(bench);
    reports.push({
      name,
      title,
      ...(refusal === undefined ? await playTrial(bench, trial) : { outcome: "not run", reason: refusal }),
    });
  }
  return reports;
}

type Outcome = TrialReport extends infer R ? (R extends unknown ? Omit<R, "name" | "title"> : never) : never;

async function playTrial(bench: Bench, trial: Trial): Promise<Outcome> {
  try {
    const { judgement, intents, notRun } = await trial.play(bench);
    const received = intents.flatMap(({ attempts }) => attempts.map((attempt) => attempt.received));
    const complete = received.filter(({ isComplete }) => isComplete).length;
    const partial = received.filter(({ isComplete, words }) => !isComplete && words > 0).length;
    if (received.length === 0) {
      return { outcome: "not run", reason: notRun[0]?.reason ?? "no request was sent" };
    }
    return { outcome: "run", requests: received.length, complete, partial, not_run: notRun, ...judgement };
  } catch (error) {
    return { outcome: "failed", reason: (error as Error).message };
  }
}

function logOf(bench: Bench, upstream: ScriptedUpstream): string {
  const lines = [
    ...upstream.allCalls().map((call) => ({ side: "upstream", ...call })),
    ...bench.attempts.map(({ id, name, attempt }) => ({ side: "client", id, name, ...attempt })),
  ];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

if (import.meta.main) process.exitCode = await runOverspend(process.argv.slice(2));
