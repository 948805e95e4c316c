/**
 * Runs before `npm start` and `npm test`: installs the packages of package-lock.json where they are missing or differ.
 * Plain JavaScript, because in a fresh clone any Node from version 20 on runs it, before the project's own runtime is
 * installed. Argument: a folder with its own packages, such as `bench`; default: the project.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { basename, delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const project = dirname(dirname(fileURLToPath(import.meta.url)));
const root = resolve(project, process.argv[2] ?? ".");

/** Describes the first difference between the lock file and the installed packages; undefined when they agree. */
function findMissing() {
  const wanted = readPackages(join(root, "package-lock.json"));
  const installed = readPackages(join(root, "node_modules", ".package-lock.json"));
  if (installed === undefined) return "there are no packages yet";
  // Optional packages that the project does not name itself are for other platforms.
  const ownOptional = new Set(
    Object.keys(wanted?.[""]?.optionalDependencies ?? {}).map((name) => `node_modules/${name}`),
  );
  for (const [path, { version, optional }] of Object.entries(wanted ?? {})) {
    if (path === "") continue;
    const present = installed[path];
    const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
    if (present === undefined && (!optional || ownOptional.has(path))) return `${name} is missing`;
    if (present !== undefined && present.version !== version) return `${name} should be ${version}`;
  }
  return undefined;
}

function readPackages(path) {
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).packages : undefined;
}

const ownNode = join(project, "node_modules", ".bin", process.platform === "win32" ? "node.cmd" : "node");

/** Reports whether a recent Node is installed: the project's own, or the one that runs this script. */
function hasRuntime() {
  if (existsSync(ownNode)) return true;
  return Number(process.versions.node.split(".")[0]) >= 24;
}

/** Runs npm with the given Node (default: the one that runs npm now); resolves with its exit code and its output. */
function runNpm(commandArguments, node = process.env.npm_node_execpath ?? process.execPath) {
  const npmScript = process.env.npm_execpath;
  const isNpm = npmScript !== undefined && basename(npmScript) === "npm-cli.js";
  const command = isNpm ? node : "npm";
  const all = isNpm ? [npmScript, ...commandArguments] : commandArguments;
  const env = { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH}` };
  const child = spawn(command, all, { cwd: root, env, stdio: ["ignore", "pipe", "pipe"], shell: !isNpm });
  let printed = "";
  const keep = (chunk) => {
    printed += chunk;
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  return new Promise((resolve) => {
    child.on("error", (error) => resolve({ code: 1, printed: String(error) }));
    child.on("close", (code) => resolve({ code: code ?? 1, printed }));
  });
}

async function install(reason) {
  const startedAtMs = Date.now();
  console.error(`Installing packages from the npm registry (${reason}); this takes about a minute ...`);
  // Neither NODE_ENV=production nor omit=dev may leave out the development packages: the runtime is one of them.
  const flags = ["--include=dev", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"];
  // Left by an interrupted `npm pack`, it would take the place of package-lock.json.
  rmSync(join(root, "npm-shrinkwrap.json"), { force: true });
  let { code, printed } = await runNpm(["ci", ...flags]);
  // Under an older Node npm leaves out optional packages that require a newer one. The runtime that it has just
  // installed adds them from the same lock file; a second `npm ci` would delete that runtime while it runs.
  if (code === 0 && findMissing() !== undefined && existsSync(ownNode))
    ({ code, printed } = await runNpm(["install", "--no-save", ...flags], ownNode));
  if (code !== 0) {
    console.error(printed.trimEnd());
    console.error("The packages could not be installed. The output of npm is above.");
    process.exit(code);
  }
  console.error(`Installed in ${Math.round((Date.now() - startedAtMs) / 1000)} s.`);
}

const reason = findMissing();
if (reason !== undefined) await install(reason);
if (!hasRuntime()) {
  console.error(
    `Tollgate needs Node 24 or later; this is ${process.versions.node}, and the package of the runtime ` +
      `(scripts/runtime/package.json) has no build for ${process.platform} ${process.arch}. Install Node 24 or later.`,
  );
  process.exit(1);
}
