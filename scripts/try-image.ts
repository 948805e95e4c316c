/**
 * `node scripts/try-image.ts`: builds deploy/Dockerfile and runs the image, without a container engine: mmdebstrap makes
 * the base image from Debian's packages, with this Node and npm; buildah builds on it with the isolation of a chroot. Then
 * the image serves a completion and ends on SIGTERM. Needs root, mmdebstrap and buildah. Ends with 1 when a check fails.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const BASE_IMAGE = "localhost/tollgate-node:try";
const IMAGE = "localhost/tollgate:try";
const DEBIAN = "bookworm";
/** A chroot shares the network of this machine. */
const PORT = "18484";

/** Runs in the container as its user: what a container engine would run, and what its users would see. */
const TRIAL = `
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
const [entry, health] = JSON.parse(process.env.TRIAL);
let service;
const fail = (text) => { console.error("FAILED: " + text); service?.kill("SIGKILL"); process.exit(1); };
if (process.getuid() !== 10001) fail("the user is " + process.getuid());
const found = spawnSync("find", ["/", "-xdev", "-type", "d", "-writable", "-not", "-path", "/proc/*"], { encoding: "utf8" });
const writable = found.stdout.split("\\n").filter((path) => path && !/^[/](data|tmp|var[/]tmp|run[/]lock|dev)([/]|$)/.test(path));
if (writable.length > 0) fail("writable: " + writable.join(" "));
service = spawn(entry[0], entry.slice(1), { stdio: ["ignore", "pipe", "inherit"] });
let printed = "";
service.stdout.on("data", (bytes) => { printed += bytes; });
const ended = new Promise((resolve) => service.on("exit", (code) => resolve(code)));
const url = "http://127.0.0.1:" + process.env.PORT;
const isReady = async () => /^curl /m.test(printed) && (await fetch(url + "/readyz").catch(() => undefined))?.status === 200;
for (let tries = 0; !(await isReady()); tries++) {
  if (tries > 600 || service.exitCode !== null) fail("the service did not become ready: " + printed);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const check = spawnSync(health[0], health.slice(1));
if (/sk-tg-|tg-admin-/.test(printed)) fail("the output has a token: " + printed);
const token = readFileSync("/data/access-token", "utf8").trim();
if (check.status !== 0) fail("the health check ended with " + check.status);
const answer = await fetch(url + "/v1/chat/completions", {
  method: "POST",
  headers: { authorization: "Bearer " + token, "content-type": "application/json" },
  body: JSON.stringify({ model: "sandbox/echo", messages: [{ role: "user", content: "from a container" }] }),
});
const { choices, messages } = await answer.json();
const text = JSON.stringify(choices ?? messages);
if (answer.status !== 200 || !text.includes("from a container")) fail(answer.status + " " + text);
service.kill("SIGTERM");
const code = await ended;
if (code !== 0) fail("SIGTERM ended the service with " + code);
if (spawnSync(health[0], health.slice(1)).status !== 1) fail("the health check passes without a service");
console.log("served a completion as user " + process.getuid() + ", nothing but the data directory and /tmp is writable");
`;

interface ImageConfig {
  User: string;
  Entrypoint: string[];
  Cmd: string[];
  Volumes: Record<string, object>;
  StopSignal: string;
}

const work = mkdtempSync(join(tmpdir(), "tollgate-image-"));
const containers: string[] = [];
try {
  buildBase();
  run("buildah", ["bud", "--format", "docker", "--build-arg", `NODE_IMAGE=${BASE_IMAGE}`, ...dockerfile(), root]);
  tryImage();
} finally {
  for (const container of containers) run("buildah", ["rm", container]);
  rmSync(work, { recursive: true, force: true });
}

function dockerfile(): string[] {
  return ["--network", "host", "--file", join(root, "deploy", "Dockerfile"), "--tag", IMAGE];
}

/** Makes the image that takes the place of NODE_IMAGE, which only a registry has. */
function buildBase(): void {
  const packages = join(work, "base.tar");
  run("mmdebstrap", [
    "--quiet",
    "--variant=minbase",
    "--include=ca-certificates,libatomic1,libstdc++6",
    DEBIAN,
    packages,
  ]);
  const container = start("scratch");
  const npm = dirname(dirname(realpathSync(run("which", ["npm"]).trim())));
  run("buildah", ["add", "--quiet", container, packages, "/"]);
  run("buildah", ["copy", "--quiet", container, realpathSync(process.execPath), "/usr/local/bin/node"]);
  run("buildah", ["copy", "--quiet", container, npm, "/usr/local/lib/node_modules/npm"]);
  const link = "ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm";
  run("buildah", ["run", container, "--", "sh", "-c", link]);
  // The build trusts the certificates that this machine trusts, such as that of a proxy before npm's registry.
  const certificates = "/etc/ssl/certs/ca-certificates.crt";
  run("buildah", ["copy", "--quiet", container, certificates, certificates]);
  run("buildah", ["config", "--env", `NODE_EXTRA_CA_CERTS=${certificates}`, container]);
  run("buildah", ["commit", "--quiet", container, BASE_IMAGE]);
}

function tryImage(): void {
  const inspected = JSON.parse(run("buildah", ["inspect", "--type", "image", IMAGE]));
  const config: ImageConfig = inspected.Docker.config;
  const stated = { user: config.User, volumes: Object.keys(config.Volumes), signal: config.StopSignal };
  console.log(`The image states ${JSON.stringify(stated)}.`);
  const container = start(IMAGE);
  writeFileSync(join(work, "trial.mjs"), TRIAL);
  const trial = JSON.stringify([[...config.Entrypoint, ...config.Cmd], healthCheck()]);
  const mount = ["--volume", `${join(work, "trial.mjs")}:/trial.mjs:ro`];
  const environment = ["--env", `PORT=${PORT}`, "--env", `TRIAL=${trial}`];
  console.log(run("buildah", ["run", ...mount, ...environment, container, "--", "node", "/trial.mjs"]).trim());
}

/** Reads the check from the Dockerfile, because buildah shows it only in nanoseconds and shell forms. */
function healthCheck(): string[] {
  const text = readFileSync(join(root, "deploy", "Dockerfile"), "utf8");
  const stated = /^HEALTHCHECK [^\n]*\n\s*CMD (\[.*\])$/m.exec(text)?.[1];
  if (stated === undefined) throw new Error("deploy/Dockerfile states no HEALTHCHECK as a JSON list");
  return JSON.parse(stated);
}

function start(image: string): string {
  const container = run("buildah", ["from", image]).trim();
  containers.push(container);
  return container;
}

/** Runs a program and returns its standard output. Ends this process with 1 when the program fails. */
function run(program: string, words: string[]): string {
  const environment = { ...process.env, BUILDAH_ISOLATION: "chroot", STORAGE_DRIVER: "vfs" };
  const { status, stdout, stderr, error } = spawnSync(program, words, {
    encoding: "utf8",
    env: environment,
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status === 0) return stdout;
  console.error(`${program} ${words.join(" ")}\n${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}`);
  throw new Error(`${program} failed`);
}
