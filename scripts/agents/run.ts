/** Installs a program from npm, and runs it through a Tollgate service whose provider is the scripted upstream. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { UsageReport } from "../../src/api/usage.ts";
import { makeOrganization, send, startService } from "../../test/support/service.ts";
import { PRICE, SCRIPTED, startScriptedUpstream } from "./upstream.ts";
import { type ScriptedCall, WIRES } from "./wires.ts";

const INSTALLED = join(tmpdir(), "tollgate-agents");
const INSTALL_TIMEOUT_MS = 10 * 60_000;
const RUN_TIMEOUT_MS = 3 * 60_000;
const MODEL = "house-model";
const EMBEDDING_MODEL = "house-embeddings";

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
  prompt: string;
  calls: (place: Place) => readonly ScriptedCall[];
  /** Files of the working directory. */
  files: Record<string, string>;
  /** Settings of the service besides its provider and models. */
  settings: object;
  /** Lists what is wrong in the working directory afterwards. */
  check: (place: Place) => Promise<string[]>;
}

export interface Outcome {
  /** Everything that was wrong; empty if the program did its task and was charged exactly. */
  problems: string[];
  requests: number;
  microCredits: number;
  output: string;
}

interface Options {
  cwd: string;
  env: NodeJS.ProcessEnv;
  timeoutMs: number;
}

/** Runs a program without a terminal; resolves with its output and its exit code, which is null if it had to be killed. */
function run(program: string, words: readonly string[], { cwd, env, timeoutMs }: Options) {
  const child = spawn(program, words, { cwd, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  return new Promise<{ code: number | null; output: string }>((resolve, reject) => {
    const timer = setTimeout(() => {
      // The whole process group, because agents start processes of their own.
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    }, timeoutMs);
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

/** Configuration of a service with models at the scripted upstream. */
function configuration(provider: { kind: string; baseUrl: string }, model: string, settings: object) {
  return {
    ...settings,
    sandbox: { enabled: false },
    // Claude Code asks for its own names.
    aliases: { "claude-*": model },
    providers: [{ id: "scripted", apiKey: "none", ...provider }],
    models: [
      {
        id: model,
        routes: [{ provider: "scripted", model: SCRIPTED.chat }],
        price: PRICE,
        contextWindow: 200_000,
        maxOutputTokens: 32_000,
        capabilities: ["chat", "streaming", "instructions", "tools"],
      },
      {
        id: EMBEDDING_MODEL,
        routes: [{ provider: "scripted", model: SCRIPTED.embeddings }],
        category: "embedding",
        price: { input: PRICE.input, output: 0 },
        contextWindow: 8192,
        dimensions: 2,
      },
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
  const upstream = await startScriptedUpstream(wire, trial.calls(place));
  const config = configuration({ kind: wire.kind, baseUrl: upstream.baseUrl }, model, trial.settings);
  const service = await startService({ config });
  try {
    place.url = service.url;
    place.token = (await makeOrganization(service, "100")).token;
    await writeFiles(work, trial.files);
    await writeFiles(home, program.files?.(place) ?? {});
    await symlink(packages, join(home, "node_modules"));
    const added = { HOME: home, ...program.environment?.(place), ...program.offline };
    const env = environmentOf(added, [join(packages, ".bin")]);
    let output = "";
    const problems: string[] = [];
    for (const words of [program.setup?.(place), program.arguments(place, trial.prompt)]) {
      if (words === undefined) continue;
      const ran = await run(program.program, words, { cwd: work, env, timeoutMs: RUN_TIMEOUT_MS });
      output += ran.output;
      if (ran.code === null) problems.push("it did not end in time");
      else if (ran.code !== 0) problems.push(`it exited with ${ran.code}`);
    }
    problems.push(...upstream.missing().map((tool) => `it does not offer the tool ${tool}`));
    problems.push(...(await trial.check(place)));
    const usage = (await (await send(service, "/v1/usage", place.token)).json()) as UsageReport;
    const { creditsUsed, creditsHeld } = usage;
    if (creditsHeld !== 0) problems.push(`${creditsHeld} credits are still held`);
    const microCredits = Math.round(creditsUsed * 1e6);
    const expected = upstream.microCredits();
    if (microCredits !== expected) problems.push(`${microCredits} micro-credits are charged instead of ${expected}`);
    return { problems, requests: upstream.answers(), microCredits, output };
  } finally {
    await service.end();
    await upstream.close();
    await rm(folder, { recursive: true, force: true });
  }
}
