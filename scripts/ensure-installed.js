/**
 * Runs before `npm start` and `npm test`: installs the packages of package-lock.json where they are missing or differ.
 * Plain JavaScript, for the Node that is at hand in a fresh clone (20 or later) runs it before the project's own is
 * there. Argument: a folder with packages of its own, such as `bench`; absent: the project.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { basename, delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const project = dirname(dirname(fileURLToPath(import.meta.url)));
const root = resolve(project, process.argv[2] ?? ".");

/** What differs between the lock and what npm noted as installed, in words; undefined where nothing does. */
function findMissing() {
  const wanted = readPackages(join(root, "package-lock.json"));
  const installed = readPackages(join(root, "node_modules", ".package-lock.json"));
  if (installed === undefined) return "there are no packages yet";
  // Of what is optional, only what this project names itself: the rest is for other platforms.
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

/** The package `node` fetches the runtime in its install script, which npm can be told not to run. */
function hasRuntime() {
  if (existsSync(ownNode)) return true;
  return Number(process.versions.node.split(".")[0]) >= 24;
}

/** Runs npm by the Node that ran it, or by another; resolves with its exit code. What it prints is shown only where it fails. */
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
  // Development packages hold the runtime, so that neither NODE_ENV=production nor omit=dev may leave them out. Not
  // `npm ci`: it refuses a lock that was made on one platform and lacks the optional binaries of another.
  const wanted = ["--include=dev", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"];
  const command = ["install", "--no-save", ...wanted];
  let { code, printed } = await runNpm(command);
  // Under an older Node npm leaves out optional packages that ask for a newer one: the one that it has brought takes them.
  if (code === 0 && findMissing() !== undefined && existsSync(ownNode))
    ({ code, printed } = await runNpm(command, ownNode));
  if (code !== 0) {
    console.error(printed.trimEnd());
    console.error("The packages could not be installed: npm's own words stand above.");
    process.exit(code);
  }
  console.error(`Installed in ${Math.round((Date.now() - startedAtMs) / 1000)} s.`);
}

const reason = findMissing();
if (reason !== undefined) await install(reason);
if (!hasRuntime()) {
  console.error(
    `Tollgate needs Node 24 or later, this is ${process.versions.node}, and npm did not run the install script of the ` +
      "package `node` that brings one. Run: npm rebuild node --ignore-scripts=false",
  );
  process.exit(1);
}
