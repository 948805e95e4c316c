import { execFile, execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, inject, test } from "vitest";
import { parse } from "yaml";
import { MEMORY_SETTINGS, NODE_FLAGS } from "../../bench/tollgate.ts";
import { ROOT } from "../support/documents.ts";
import { freePort } from "../support/service.ts";

const dockerfile = readFileSync(join(ROOT, "deploy", "Dockerfile"), "utf8");
const compose: {
  services: Record<string, Service>;
  networks: { default: { ipam: { config: { gateway: string }[] } } };
} = parse(readFileSync(join(ROOT, "deploy", "compose.yaml"), "utf8"));
const documented = ["configuration.md", "providers.md"]
  .map((page) => readFileSync(join(ROOT, "docs", page), "utf8"))
  .join("\n");

interface Service {
  command?: string[];
  environment: Record<string, string>;
  mem_limit?: string;
  depends_on: Record<string, { condition: string }>;
  healthcheck?: { test: string[] };
  read_only?: boolean;
  cap_drop?: string[];
  stop_grace_period?: string;
  volumes?: string[];
}

const run = promisify(execFile);

/** `scripts/try-image.ts` builds and runs the image; it needs root and Debian's programs, so it is no part of these tests. */
describe("the Dockerfile", () => {
  test("builds on the Node that the lock file pins for the service", () => {
    const runtime = JSON.parse(readFileSync(join(ROOT, "scripts", "runtime", "package.json"), "utf8"));
    const [, version] =
      /^ARG NODE_IMAGE=docker\.io\/library\/node:([\d.]+)-bookworm-slim(?:@sha256:[0-9a-f]{64})?$/m.exec(dockerfile) ??
      [];
    expect(new Set(Object.values(runtime.optionalDependencies))).toEqual(new Set([version]));
  });

  test("copies what the package is made of", () => {
    const { files } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const ignored = readFileSync(join(ROOT, ".dockerignore"), "utf8");
    const sources: string[] = files
      .filter((file: string) => !file.startsWith("!") && file !== "dist" && file !== "npm-shrinkwrap.json")
      .map((file: string) => file.split("/")[0]);
    for (const name of [...sources, "src", "scripts", "LICENSE", "README.md"])
      expect(ignored).toContain(`\n!${name}\n`);
  });

  test("sets only variables that the documentation names", () => {
    const stated = /^ENV ((?:.*\\\n)*.*)$/m.exec(dockerfile)?.[1] ?? "";
    const names = [...stated.matchAll(/([A-Z_]+)=/g)].map(([, name]) => name as string);
    expect(names).toEqual(["NODE_ENV", "MALLOC_ARENA_MAX", "HOST", "PORT", "TOLLGATE_DATA_DIR"]);
    for (const name of names.slice(2)) expect(documented).toContain(name);
  });
});

test("The image, the systemd unit, npm start and the benchmarks bound memory in the same way.", () => {
  const starts = ["deploy/Dockerfile", "deploy/systemd/tollgate.service", "package.json"];
  for (const file of starts) {
    const text = readFileSync(join(ROOT, file), "utf8");
    for (const flag of NODE_FLAGS) expect(text, file).toMatch(new RegExp(`\\bnode"?,? "?${flag}\\b`));
    for (const setting of Object.entries(MEMORY_SETTINGS)) expect(text, file).toContain(setting.join("="));
  }
});

describe("the Compose file", () => {
  const service = compose.services.tollgate as Service;

  test("sets only variables that the documentation names", () => {
    for (const name of Object.keys(service.environment)) expect(documented, name).toContain(name);
  });

  test("starts the service when its stores are healthy", () => {
    for (const [name, { condition }] of Object.entries(service.depends_on)) {
      expect(condition).toBe("service_healthy");
      expect(compose.services[name]?.healthcheck?.test.length).toBeGreaterThan(0);
    }
    expect(Object.keys(service.depends_on)).toEqual(["postgres", "valkey"]);
  });

  test("gives the service no privileges and enough time to stop", () => {
    expect(service).toMatchObject({ read_only: true, cap_drop: ["ALL"] });
    expect(service.volumes).toEqual(["data:/data", "./compose:/etc/tollgate:ro"]);
    expect(Number.parseInt(service.stop_grace_period ?? "", 10)).toBeGreaterThanOrEqual(610);
  });

  test("limits the memory of every container", () => {
    for (const [name, { mem_limit }] of Object.entries(compose.services)) expect(mem_limit, name).toMatch(/^\d+[mg]$/);
  });

  test("configures the service to trust the host, and nobody else, to name the address of a caller", () => {
    const file = join(ROOT, "deploy", "compose", "tollgate.yaml");
    const { server } = parse(readFileSync(file, "utf8"));
    expect(server.trustProxy).toBe(compose.networks.default.ipam.config[0]?.gateway);
    expect(service.command).toEqual(["serve", "--config", "/etc/tollgate/tollgate.yaml"]);
    const checked = execFileSync(process.execPath, ["src/main.ts", "config", "check", "--config", file], { cwd: ROOT });
    expect(checked.toString()).toContain("The configuration is valid");
  });

  test.skipIf(!inject("hasRedis"))("runs Valkey with a password, which is no argument of its process", async () => {
    const port = String(await freePort());
    const password = "letters1and2digits";
    const [shell = "", ...words] = compose.services.valkey?.command ?? [];
    // Redis stands for Valkey, and Compose replaces `$$`.
    const script = words.map((word) =>
      word.replaceAll("$$", "$").replace("valkey-server -", `redis-server - --port ${port} --bind 127.0.0.1`),
    );
    const environment = { PATH: process.env.PATH, VALKEY_PASSWORD: password };
    const server = spawn(shell, script, { env: environment, cwd: tmpdir(), stdio: "ignore" });
    try {
      const ping = async (more: object) => {
        const { stdout } = await run("redis-cli", ["-p", port, "ping"], { env: { ...process.env, ...more } });
        return stdout.trim();
      };
      await expect.poll(() => ping({ REDISCLI_AUTH: password }).catch(() => "")).toBe("PONG");
      expect(await ping({})).toContain("NOAUTH");
      expect(readFileSync(`/proc/${server.pid}/cmdline`, "utf8")).not.toContain(password);
    } finally {
      server.kill("SIGKILL");
    }
  });
});
