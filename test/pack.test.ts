import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFile, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { linksOf, readDocuments } from "./support/documents.ts";
import { freePort } from "./support/service.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const INSTALL_TIMEOUT_MS = 240_000;
const FETCH_TIMEOUT_MS = 120_000;
const START_TIMEOUT_MS = 120_000;

const TOKEN = /sk-tg-[0-9A-Za-z]{49}/;

/** Ours, without what npm hands to its scripts and would steer the npm called here, and without the service's settings. */
const STEERING = /^(npm_|node_env$|vitest|tollgate_|port$|host$|database_url$|redis_url$|log_level$|.*_api_key$)/i;
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !STEERING.test(name)));

const REPOSITORY = "https://git.example.com/tollgate";

describe("the packed package, installed into an empty folder", () => {
  let folder: string;
  let release: string[];
  let tarball: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "tollgate-pack-"));
    const words = ["--out", join(folder, "release"), "--repository", REPOSITORY, "--draft"];
    const { stdout } = await run(process.execPath, ["scripts/release.ts", ...words], root);
    release = JSON.parse(stdout).files;
    tarball = join(folder, "release", release.find((name) => name.endsWith(".tgz")) ?? "");
    const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
    // The packages of this checkout are in npm's cache. npm itself would wait five minutes for a download that stalls.
    const fetching = ["--prefer-offline", `--fetch-timeout=${FETCH_TIMEOUT_MS}`];
    await run("npm", ["install", "--prefix", folder, ...quiet, ...fetching, tarball], folder);
  }, INSTALL_TIMEOUT_MS);

  const readRelease = async (name: string) => JSON.parse(await readFile(join(dirname(tarball), name), "utf8"));

  afterAll(() => rm(folder, { recursive: true, force: true }));

  const packedPaths = async () => {
    const { stdout } = await run("tar", ["--list", "--file", tarball], folder);
    return stdout
      .trim()
      .split("\n")
      .map((path) => path.replace(/^package\//, ""));
  };

  test("holds compiled JavaScript and what it reads, nothing else", async () => {
    const paths = await packedPaths();
    expect(paths).toEqual(
      expect.arrayContaining(["bin/tollgate.js", "dist/main.js", "console/dist/index.html", "LICENSE", "README.md"]),
    );
    expect(paths.filter((path) => extname(path) === ".ts")).toEqual([]);
    expect(paths.filter((path) => /(^|[./])(test|contract\/fixture)\b/.test(path))).toEqual([]);
    expect(
      paths.filter(
        (path) =>
          !/^(bin|deploy|dist|docs|console\/dist|overspend\/gateways)\/|^[A-Z]+(\.md)?$|^overspend\/README\.md$|^(package|npm-shrinkwrap)\.json$/.test(
            path,
          ),
      ),
    ).toEqual([]);
  });

  test("holds everything that its documentation links to", async () => {
    const paths = await packedPaths();
    const pages = readDocuments().filter(({ path }) => paths.includes(path));
    const links = pages.flatMap((page) => linksOf(page).map(({ target }) => ({ page: page.path, target })));
    expect(links.length).toBeGreaterThan(100);
    expect(
      links.filter(({ target }) => !paths.some((path) => path === target || path.startsWith(`${target}/`))),
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
    // It is bundled.
    expect(modules).not.toContain("typebox");
  });

  test("comes with sums, a list of its contents and a statement of its origin", async () => {
    expect(release).toEqual(["SHA256SUMS", "provenance.json", "sbom.cdx.json", basename(tarball)]);
    const { stdout } = await run("sha256sum", ["--check", "SHA256SUMS"], dirname(tarball));
    expect(stdout.match(/: OK$/gm)).toHaveLength(3);
    const sbom = await readRelease("sbom.cdx.json");
    const listed: string[] = sbom.components.map(({ name }: { name: string }) => name);
    const shrinkwrap = await readLock(join(folder, "node_modules", "tollgate", "npm-shrinkwrap.json"));
    const shipped = Object.keys(shrinkwrap).filter((path) => path !== "");
    const names = shipped.map((path) => path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length));
    expect(listed).toEqual(expect.arrayContaining(names));
    expect(listed).toEqual(expect.arrayContaining(["typebox", "react", "@fontsource-variable/inter"]));
    for (const name of ["vitest", "typescript", "vite", "playwright-core"]) expect(listed).not.toContain(name);
    const { subject, predicate } = await readRelease("provenance.json");
    const digest = {
      sha256: createHash("sha256")
        .update(await readFile(tarball))
        .digest("hex"),
    };
    expect(subject).toContainEqual({ name: basename(tarball), digest });
    const { stdout: commit } = await run("git", ["rev-parse", "HEAD"], root);
    const source = { uri: `git+${REPOSITORY}`, digest: { gitCommit: commit.trim() } };
    expect(predicate.buildDefinition.resolvedDependencies).toContainEqual(source);
  });

  test("names the commit that it was built from", async () => {
    const { stdout: commit } = await run("git", ["rev-parse", "--short=7", "HEAD"], root);
    const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    // The folder of the tests is a part of no clone.
    expect((await run("npx", ["tollgate", "--version"], folder)).stdout).toBe(`${version}+${commit.slice(0, 7)}\n`);
  });

  test("a release is refused without the tag of its version", async () => {
    const words = ["scripts/release.ts", "--out", join(folder, "refused"), "--repository", REPOSITORY];
    await expect(run(process.execPath, words, root)).rejects.toThrow(/no tag v|not committed/i);
    expect(await readdir(folder)).not.toContain("refused");
  });

  test("a release is refused while the base image of its image has no digest", async () => {
    const clone = join(folder, "clone");
    await run("git", ["clone", "--quiet", "--depth", "1", `file://${root}`, clone], folder);
    await symlink(join(root, "node_modules"), join(clone, "node_modules"));
    await writeFile(join(clone, ".git", "info", "exclude"), "node_modules\n");
    const { version } = JSON.parse(await readFile(join(clone, "package.json"), "utf8"));
    await copyFile(join(root, "scripts", "release.ts"), join(clone, "scripts", "release.ts"));
    const dockerfile = await readFile(join(root, "deploy", "Dockerfile"), "utf8");
    await writeFile(join(clone, "deploy", "Dockerfile"), dockerfile.replace(/(?<=^ARG NODE_IMAGE=.*)@.*$/m, ""));
    await writeFile(join(clone, "CHANGELOG.md"), `\n## [${version}]\n`);
    const by = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    await run("git", [...by, "commit", "--quiet", "--all", "--message", "release"], clone);
    await run("git", [...by, "tag", `v${version}`], clone);
    const words = ["scripts/release.ts", "--out", join(folder, "refused"), "--repository", REPOSITORY];
    await expect(run(process.execPath, words, clone)).rejects.toThrow(/NODE_IMAGE in deploy\/Dockerfile has no digest/);
    expect(await readdir(folder)).not.toContain("refused");
  });

  test("serves a completion with the token of its first start", { timeout: START_TIMEOUT_MS * 2 }, async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const words = ["tollgate", "serve", "--port", new URL(url).port];
    const service = spawn("npx", words, { cwd: folder, env: environment, detached: true });
    try {
      const printed = await outputWith(service, /^curl /m);
      expect(printed).not.toMatch(TOKEN);
      await until(async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.status === 200);
      const answer = await complete(url, (await readFile(join(folder, ".tollgate", "access-token"), "utf8")).trim());
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

/** Runs a program to its end. The compiler prints its errors on standard output. */
async function run(command: string, words: string[], cwd: string) {
  try {
    return await promisify(execFile)(command, words, { cwd, env: environment, maxBuffer: 2 ** 26 });
  } catch (error) {
    throw new Error(`${String(error)}\n${(error as { stdout?: string }).stdout}`, { cause: error });
  }
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
