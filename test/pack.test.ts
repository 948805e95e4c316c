import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort } from "./support/service.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const INSTALL_TIMEOUT_MS = 240_000;
const START_TIMEOUT_MS = 60_000;

const TOKEN = /sk-tg-[0-9A-Za-z]{49}/;

/** Ours, without what npm hands to its scripts and would steer the npm called here, and without the service's settings. */
const STEERING = /^(npm_|node_env$|vitest|tollgate_|port$|host$|database_url$|redis_url$|log_level$|.*_api_key$)/i;
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !STEERING.test(name)));

interface Packed {
  filename: string;
  files: { path: string }[];
}

describe("the packed package, installed into an empty folder", () => {
  let folder: string;
  let packed: Packed;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tollgate-pack-"));
    const { stdout } = await run("npm", ["pack", "--json", "--silent", "--pack-destination", folder], root);
    packed = readPacked(stdout);
    const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
    await run("npm", ["install", "--prefix", folder, ...quiet, join(folder, packed.filename)], folder);
  }, INSTALL_TIMEOUT_MS);

  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("holds compiled JavaScript and what it reads, nothing else", () => {
    const paths = packed.files.map(({ path }) => path);
    expect(paths).toEqual(
      expect.arrayContaining(["bin/tollgate.js", "dist/main.js", "console/dist/index.html", "LICENSE", "README.md"]),
    );
    expect(paths.filter((path) => extname(path) === ".ts")).toEqual([]);
    expect(paths.filter((path) => /(^|[./])(test|contract\/fixture)\b/.test(path))).toEqual([]);
    expect(
      paths.filter(
        (path) =>
          !/^(bin|deploy|dist|docs|console\/dist)\/|^[A-Z]+(\.md)?$|^(package|npm-shrinkwrap)\.json$/.test(path),
      ),
    ).toEqual([]);
  });

  test("contains the locked version and integrity of every package that it needs, and of no other", async () => {
    const shrinkwrap = await readLock(join(folder, "node_modules", "tollgate", "npm-shrinkwrap.json"));
    const lock = await readLock(join(root, "package-lock.json"));
    const needed = Object.entries(lock).filter(([path, { dev, link }]) => path !== "" && !dev && !link);
    const { "": own, ...others } = shrinkwrap;
    expect(Object.keys(own ?? {})).not.toContain("devDependencies");
    expect(others).toEqual(Object.fromEntries(needed));
  });

  test("brings no development package", async () => {
    const modules = await readdir(join(folder, "node_modules"));
    expect(modules).toContain("fastify");
    expect(modules).not.toContain("vitest");
    expect(modules).not.toContain("typescript");
    expect(modules).not.toContain("react");
    // These two are bundled.
    expect(modules).not.toContain("kysely");
    expect(modules).not.toContain("typebox");
  });

  test("serves a completion with the token that it prints", { timeout: START_TIMEOUT_MS * 2 }, async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const words = ["tollgate", "serve", "--port", new URL(url).port];
    const service = spawn("npx", words, { cwd: folder, env: environment, detached: true });
    try {
      const printed = await outputWith(service, TOKEN);
      await until(async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.status === 200);
      const answer = await complete(url, TOKEN.exec(printed)?.[0] ?? "");
      expect(answer).toMatchObject({ status: 200, content: "Good morning" });
      expect((await fetch(`${url}/docs`)).status).toBe(200);
      expect(await (await fetch(url)).text()).toContain("<title>Tollgate</title>");
    } finally {
      await end(service);
    }
    const books = await run("npx", ["tollgate", "ledger", "verify", "--json"], folder);
    expect(JSON.parse(books.stdout)).toMatchObject({ ok: true });
  });
});

async function readLock(file: string): Promise<Record<string, { dev?: boolean; link?: boolean }>> {
  return JSON.parse(await readFile(file, "utf8")).packages;
}

/** Runs a program to its end; what the compiler finds wrong stands on its standard output. */
async function run(command: string, words: string[], cwd: string) {
  try {
    return await promisify(execFile)(command, words, { cwd, env: environment, maxBuffer: 2 ** 26 });
  } catch (error) {
    throw new Error(`${String(error)}\n${(error as { stdout?: string }).stdout}`, { cause: error });
  }
}

/** npm 12 prints an object by package name where npm 11 prints an array, and both after what the build prints. */
function readPacked(stdout: string): Packed {
  const document: unknown = JSON.parse(stdout.slice(stdout.search(/^[[{]/m)));
  const [first] = Object.values(document as Record<string, Packed>);
  if (first === undefined) throw new Error(`npm pack printed no package: ${stdout}`);
  return first;
}

async function complete(url: string, token: string): Promise<{ status: number; content: unknown }> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] }),
  });
  const body = (await answer.json()) as { choices?: { message: { content: unknown } }[] };
  return { status: answer.status, content: body.choices?.[0]?.message.content };
}

/** Resolves with a process's output as soon as it matches; rejects if it ends or is silent for too long. */
function outputWith(child: ChildProcess, pattern: RegExp): Promise<string> {
  let printed = "";
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`Not printed in time: ${printed}`)), START_TIMEOUT_MS);
    const take = (chunk: Buffer) => {
      printed += chunk;
      if (pattern.test(printed)) resolve(printed);
    };
    child.stdout?.on("data", take);
    child.stderr?.on("data", take);
    child.once("exit", () => reject(new Error(`Ended early: ${printed}`)));
    child.once("exit", () => clearTimeout(timer));
  });
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error("The service did not become ready");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** npx starts a shell that starts the service: the whole group is asked to end, and the service's end awaited. */
async function end(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null) return;
  const closed = new Promise((resolve) => child.once("close", resolve));
  process.kill(-child.pid, "SIGTERM");
  await closed;
}
