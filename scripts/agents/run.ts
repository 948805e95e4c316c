/** Installs a program from npm, and runs it through a Tollgate service whose provider is the scripted upstream. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import {
  makeOrganization,
  makeToken,
  type ServiceProcess,
  send,
  settledUsage,
  startProcess,
} from "../../test/support/service.ts";
import { CALL_PRICE, type Fault, PRICE, SCRIPTED, startScriptedUpstream } from "./upstream.ts";
import { type ScriptedCall, WIRES } from "./wires.ts";

const INSTALLED = join(tmpdir(), "tollgate-agents");
const INSTALL_TIMEOUT_MS = 10 * 60_000;
const RUN_TIMEOUT_MS = 3 * 60_000;
const MODEL = "house-model";
const EMBEDDING_MODEL = "house-embeddings";
/** The models of media, as the scripts of the libraries name them. */
export const MEDIA_MODELS = { images: "house-images", speech: "house-speech", transcription: "house-transcription" };

/** Folders, address and token of one run. */
export interface Place {
  /** Working directory of the program. */
  work: string;
  /** Home directory of the program. */
  home: string;
  /** Address of the service, without a path. */
  url: string;
  token: string;
  model: string;
  embeddingModel: string;
}

export interface Program {
  name: string;
  /** Packages with their exact versions. */
  packages: Record<string, string>;
  /** True to leave out optional packages, which the program does not need. */
  omitsOptional?: true;
  /** Name of the program, in `node_modules/.bin` or on the PATH. */
  program: string;
  /** Id of the model in the service, if the program treats some ids in a special way. */
  model?: string;
  /** Wire of the scripted upstream; the chat completions wire by default. */
  upstream?: keyof typeof WIRES;
  /** Files below the home directory, such as the configuration. */
  files?: (place: Place) => Record<string, string>;
  environment?: (place: Place) => Record<string, string>;
  /** Variables that keep the program from calling its maker. */
  offline?: Record<string, string>;
  /** Arguments of a run before, which configures the program. */
  setup?: (place: Place) => string[];
  arguments: (place: Place, prompt: string) => string[];
}

export interface Trial {
  /** Name in the variable SCENARIO, which the scripts of the libraries read. */
  scenario: string;
  prompt: string;
  calls: (place: Place) => readonly ScriptedCall[];
  /** Files of the working directory. */
  files: Record<string, string>;
  /** Settings of the service besides its provider and models. */
  settings: object;
  /** Credits of the organization; 100 if absent. */
  credits?: string;
  /** Requests in a minute that the token may send, of which none is left at first. */
  requestsPerMinute?: number;
  fault?: Fault;
  /** True to end the program once an answer has begun. */
  leaves?: true;
  /** Lists what is wrong afterwards. */
  check: (place: Place, ran: Ran) => Promise<string[]>;
}

export interface Ran {
  /** Exit code; null if the program had to be killed. */
  code: number | null;
  output: string;
  /** Kinds of the requests, such as `embeddings`, and `image` if one had an image. */
  seen: ReadonlySet<string>;
}

export interface Outcome extends Ran {
  /** Everything that was wrong; empty if the program did its task and was charged exactly. */
  problems: string[];
  requests: number;
  microCredits: number;
}

interface Options {
  cwd: string;
  env: NodeJS.ProcessEnv;
  timeoutMs: number;
  /** Ends the program early. */
  signal?: AbortSignal;
}

/** Runs a program without a terminal; resolves with its output and its exit code, which is null if it had to be killed. */
function run(program: string, words: readonly string[], { cwd, env, timeoutMs, signal }: Options) {
  const child = spawn(program, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  return new Promise<{ code: number | null; output: string }>((resolve, reject) => {
    // The whole process group, because agents start processes of their own.
    const kill = () => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
    };
    const timer = setTimeout(kill, timeoutMs);
    signal?.addEventListener("abort", kill, { once: true });
    child.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve({ code, output });
    });
  });
}

/** Installs the packages, unless an earlier run did; returns their `node_modules`. */
async function install({ packages, omitsOptional }: Program): Promise<string> {
  const names = Object.entries(packages).map(([name, version]) => `${name}@${version}`);
  const folder = join(INSTALLED, names.join("+").replaceAll("/", "-"));
  const complete = join(folder, "complete");
  if (!existsSync(complete)) {
    await mkdir(folder, { recursive: true });
    const flags = ["--no-audit", "--no-fund", "--loglevel=error", ...(omitsOptional ? ["--omit=optional"] : [])];
    const words = ["install", "--prefix", folder, ...flags, ...names];
    const options = {
      cwd: folder,
      env: process.env,
      timeoutMs: INSTALL_TIMEOUT_MS,
    };
    const { code, output } = await run("npm", words, options);
    if (code !== 0) throw new Error(`npm could not install ${names.join(", ")}:\n${output}`);
    await writeFile(complete, "");
  }
  return join(folder, "node_modules");
}

/** Makes the environment of a program: none of the keys and settings of this process reaches it. */
function environmentOf(added: Record<string, string>, programs: string[] = []): NodeJS.ProcessEnv {
  const path = [...programs, dirname(process.execPath), process.env.PATH].join(delimiter);
  return { PATH: path, LANG: "C.UTF-8", NO_COLOR: "1", CI: "1", ...added };
}

async function writeFiles(folder: string, files: Record<string, string>): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
}

function medium(name: keyof typeof MEDIA_MODELS, category: string, price: object) {
  const routes = [{ provider: "scripted", model: SCRIPTED[name] }];
  return { id: MEDIA_MODELS[name], category, price, routes };
}

/** Configuration of a service with models at the scripted upstream. */
function configuration(provider: { kind: string; baseUrl: string }, model: string, settings: object) {
  return {
    ...settings,
    sandbox: { enabled: false },
    // Claude Code and Gemini CLI ask for their own names.
    aliases: { "claude-*": model, "gemini-*": model },
    providers: [{ id: "scripted", apiKey: "none", ...provider }],
    models: [
      {
        id: model,
        routes: [{ provider: "scripted", model: SCRIPTED.chat }],
        price: PRICE,
        contextWindow: 200_000,
        maxOutputTokens: 32_000,
        capabilities: ["chat", "streaming", "instructions", "tools", "vision", "structured_output"],
      },
      {
        id: EMBEDDING_MODEL,
        routes: [{ provider: "scripted", model: SCRIPTED.embeddings }],
        category: "embedding",
        price: { input: PRICE.input, output: 0 },
        contextWindow: 8192,
        dimensions: 2,
      },
      medium("images", "image", { input: 0, perImage: CALL_PRICE.perImage }),
      medium("speech", "speech", { input: 0, perCharacter: CALL_PRICE.perCharacter }),
      medium("transcription", "transcription", { input: 0, perSecond: CALL_PRICE.perSecond }),
    ],
  };
}

/** Runs one program, and compares the charges with the usage of the scripted answers. */
export async function tryProgram(program: Program, trial: Trial): Promise<Outcome> {
  const packages = await install(program);
  const folder = await mkdtemp(join(tmpdir(), "tollgate-agent-"));
  const [work, home] = [join(folder, "work"), join(folder, "home")];
  const { model = MODEL } = program;
  const wire = WIRES[program.upstream ?? "chat"];
  const place: Place = { work, home, url: "", token: "", model, embeddingModel: EMBEDDING_MODEL };
  const upstream = await startScriptedUpstream(wire, trial.calls(place), trial.fault);
  const config = configuration({ kind: wire.kind, baseUrl: upstream.baseUrl }, model, trial.settings);
  const service = await startProcess({ config });
  try {
    place.url = service.url;
    place.token = await tokenFor(service, model, trial);
    await writeFiles(work, trial.files);
    await writeFiles(home, program.files?.(place) ?? {});
    await symlink(packages, join(home, "node_modules"));
    const leaving = new AbortController();
    if (trial.leaves) void upstream.held.then(() => setTimeout(() => leaving.abort(), LEAVING_MS));
    const ran = await runWords(program, place, trial, { packages, signal: leaving.signal });
    const heard: Ran = { ...ran, seen: upstream.seen };
    const problems = upstream.missing().map((tool) => `it does not offer the tool ${tool}`);
    if (trial.leaves) {
      const begun = await Promise.race([upstream.held, undefined]);
      if (begun === undefined) problems.push(`it ended before an answer had begun: ${ran.output.slice(-1500)}`);
      await begun?.closed;
    }
    problems.push(...(await trial.check(place, heard)));
    const { creditsUsed, creditsHeld } = await settledUsage(service, place.token);
    if (creditsHeld !== 0) problems.push(`${creditsHeld} credits are still held`);
    const microCredits = Math.round(creditsUsed * 1e6);
    problems.push(...(await keyProblems(service, place.token, creditsUsed)));
    const expected = upstream.microCredits();
    // An answer that breaks off has no usage: it is charged by count.
    const isWrong = {
      down: microCredits !== expected,
      // An unstreamed answer that breaks off is asked for again, and not charged.
      cut: microCredits < expected,
      held: microCredits <= expected,
    };
    if (isWrong[trial.fault ?? "down"]) {
      problems.push(`${microCredits} micro-credits are charged, and the upstream counted ${expected}`);
    }
    await service.tollgate("ledger", "verify");
    return { ...heard, problems, requests: upstream.answers(), microCredits };
  } finally {
    await service.end();
    await upstream.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** The cap of the token, so that `/v1/key` says what it has used. */
const CAP = 50;

/** Compares what `/v1/key` says with the charge. */
async function keyProblems(service: ServiceProcess, token: string, creditsUsed: number): Promise<string[]> {
  const answer = await send(service, "/v1/key", token);
  const { data } = (await answer.json()) as { data?: { usage: number; limit_remaining: number } };
  const left = Number((CAP - creditsUsed).toFixed(6));
  if (data?.usage === creditsUsed && data.limit_remaining === left) return [];
  return [`/v1/key has a usage of ${data?.usage} with ${data?.limit_remaining} left, and ${creditsUsed} are charged`];
}

/** Time after the begin of an answer for its pieces to reach the program. */
const LEAVING_MS = 500;

/** Returns the token of a new organization, whose requests of this minute are used up if the trial limits them. */
async function tokenFor(
  service: ServiceProcess,
  model: string,
  { credits, requestsPerMinute }: Trial,
): Promise<string> {
  const { id } = await makeOrganization(service, credits ?? "100");
  const limits = requestsPerMinute === undefined ? undefined : { requests_per_minute: requestsPerMinute };
  const { token } = await makeToken(service, id, { cap: CAP, ...(limits && { limits }) });
  // Long enough for the scripted usage: a charge is never above what a prompt and its bound allow.
  const messages = [{ role: "user", content: "Hello. ".repeat(50) }];
  const ask = () => send(service, "/v1/chat/completions", token, { model, messages, max_tokens: 100 });
  while (requestsPerMinute !== undefined) {
    const { status } = await ask();
    if (status === 429) break;
    if (status !== 200) throw new Error(`A request to use up the limit was answered ${status}`);
  }
  return token;
}

/** Runs the program's words one after the other; returns their whole output and the last exit code. */
async function runWords(
  program: Program,
  place: Place,
  { prompt, scenario }: Trial,
  { packages, signal }: { packages: string; signal: AbortSignal },
): Promise<Pick<Ran, "code" | "output">> {
  const added = { HOME: place.home, SCENARIO: scenario, ...program.environment?.(place), ...program.offline };
  const env = environmentOf(added, [join(packages, ".bin")]);
  let all: Pick<Ran, "code" | "output"> = { code: 0, output: "" };
  for (const words of [program.setup?.(place), program.arguments(place, prompt)]) {
    if (words === undefined) continue;
    const options = { cwd: place.work, env, timeoutMs: RUN_TIMEOUT_MS, signal };
    const { code, output } = await run(program.program, words, options);
    all = { code, output: all.output + output };
    if (code !== 0) break;
  }
  return all;
}
