import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runCommand, runTollgate, type Started, startTollgate } from "./support/command-line.ts";
import { ROOT } from "./support/documents.ts";
import { createTestDatabase, hasPostgres } from "./support/postgres.ts";

const execute = promisify(execFile);
const CURL = /^curl .*$/m;
const SECRET = /(sk-tg|tg-admin)-[0-9A-Za-z]{49}/;

let directory: string;
let started: Started[];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-start-"));
  started = [];
});
afterEach(async () => {
  for (const { child, ended } of started) {
    child.kill("SIGKILL");
    await ended;
  }
  rmSync(directory, { recursive: true });
});

function start(words: string[] = [], environment: Record<string, string> = {}): Started {
  const service = startTollgate(["serve", "--port", "0", ...words], directory, environment);
  started.push(service);
  return service;
}

/** The flag by which Node runs a text as a module before the service. */
const asModule = (text: string) => `--import=data:text/javascript,${encodeURIComponent(text)}`;
/** Lets packages look as if npm had left them out. */
const without = (names: readonly string[]) => `
  import Module from "node:module";
  const resolve = Module._resolveFilename;
  Module._resolveFilename = (name, ...rest) => {
    if (!${JSON.stringify(names)}.includes(name)) return resolve(name, ...rest);
    throw Object.assign(new Error("Cannot find module"), { code: "MODULE_NOT_FOUND" });
  };`;
const urlIn = (printed: string) => /^URL +(\S+)$/m.exec(printed)?.[1] ?? "";
const modeOf = (path: string) => statSync(path).mode & 0o777;
const tokenFile = (name: "access-token" | "admin-token") => join(directory, ".tollgate", name);
const firstToken = () => readFileSync(tokenFile("access-token"), "utf8").trim();

async function complete(printed: string, body: object, init: RequestInit = {}): Promise<Response> {
  return fetch(`${urlIn(printed)}/v1/chat/completions`, {
    ...init,
    method: "POST",
    headers: { authorization: `Bearer ${firstToken()}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

describe("a start", () => {
  test("on nothing makes an organization, and prints a line to paste that works", async () => {
    const service = start();
    const printed = await service.prints(CURL);
    const lines = printed.trim().split("\n");
    expect(lines.map((line) => line.split(/ +/)[0])).toEqual([
      "Tollgate",
      "Store",
      "Models",
      "Organization",
      "Token",
      "Admin",
      "URL",
      "curl",
    ]);
    expect(lines[3]).toMatch(/^Organization +default \(org_[0-9a-z]+\), created with 100 credits$/);
    const hint = "(keep it elsewhere, then delete the file)";
    expect(lines[4]).toBe(`Token         in ${tokenFile("access-token")} ${hint}`);
    expect(lines[5]).toBe(`Admin token   in ${tokenFile("admin-token")} ${hint}`);
    const { stdout, stderr } = await execute("sh", ["-c", CURL.exec(printed)?.[0] ?? ""]);
    const answer = JSON.parse(stdout);
    expect(answer.choices[0].message.content).toBe("Hello, Tollgate!");
    expect(answer.usage.cost).toBeGreaterThan(0);
    expect(stderr).toContain(`${100 - answer.usage.cost} credits left`);
  });

  test("without the sandbox prints a line for another model, or none", async () => {
    const file = join(directory, "tollgate.yaml");
    writeFileSync(file, "sandbox: { enabled: false }\n");
    const alone = start();
    await alone.prints(/^URL .*$/m);
    alone.child.kill("SIGTERM");
    expect((await alone.ended).stdout).not.toContain("sandbox");
    const model = `{ id: "it's", routes: [{ provider: here, model: x }], price: { input: 1, output: 1 } }`;
    const provider = "{ id: here, kind: openai-compatible, baseUrl: 'http://127.0.0.1:9/v1' }";
    writeFileSync(file, `sandbox: { enabled: false }\nproviders: [${provider}]\nmodels: [${model}]\n`);
    const other = start();
    const line = CURL.exec(await other.prints(CURL))?.[0] ?? "";
    expect(line).toContain(`"model":"it'\\''s"`);
    expect(line).toContain('"Authorization: Bearer $TOLLGATE_TOKEN"');
    const environment = { PATH: process.env.PATH, TOLLGATE_TOKEN: firstToken() };
    const { stdout } = await execute("sh", ["-c", line], { env: environment });
    expect(JSON.parse(stdout).error.code).toBe("upstream_unavailable");
  });

  test("a start on an existing store prints no token, and explains how to create one", async () => {
    const first = start();
    await first.prints(CURL);
    const token = firstToken();
    first.child.kill("SIGTERM");
    await first.ended;
    const second = start();
    const printed = await second.prints(CURL);
    expect(printed).not.toMatch(SECRET);
    const hint = /^Token +to create one: (.+ token create --org org_[0-9a-z]+)$/m.exec(printed)?.[1] ?? "";
    const pasted = await execute("sh", ["-c", `${hint} --json`], { cwd: directory, env: {} });
    expect(JSON.parse(pasted.stdout)).toMatchObject({ token: expect.stringMatching(/^sk-tg-/) });
    const curl = CURL.exec(printed)?.[0] ?? "";
    const { stdout } = await execute("sh", ["-c", curl], { env: { PATH: process.env.PATH, TOLLGATE_TOKEN: token } });
    expect(JSON.parse(stdout).choices[0].message.content).toBe("Hello, Tollgate!");
  });

  test("names the configuration and the data directory in the commands that it prints", async () => {
    mkdirSync(join(directory, "an other"));
    writeFileSync(join(directory, "an other", "own.yaml"), "log: { level: warn }");
    const words = ["--config", "an other/own.yaml", "--data-dir", "an other/it's"];
    const first = start(words);
    await first.prints(CURL);
    const run = async (...more: string[]) => {
      const { stdout } = await runCommand([...more, ...words, "--json"], directory);
      return JSON.parse(stdout);
    };
    await run("org", "create", "Second");
    first.child.kill("SIGTERM");
    await first.ended;
    const printed = await start(words).prints(CURL);
    const hints = ["Organization +more than one; list them", "Token +to create one"].map(
      (fact) => new RegExp(`^${fact}: (.+)$`, "m").exec(printed)?.[1] ?? "",
    );
    for (const hint of hints) {
      const pasted = await execute("sh", ["-c", `${hint} --json`], { cwd: directory, env: {} });
      expect(JSON.parse(pasted.stdout)).toBeTruthy();
      expect(hint).toContain("--config '");
    }
    expect(await run("token", "list")).toHaveLength(2);
  });

  test("without a terminal writes both tokens to files of their owner, and neither to its output", async () => {
    const service = start([], { LOG_LEVEL: "debug" });
    const printed = await service.prints(CURL);
    expect(
      (await complete(printed, { model: "sandbox/echo", messages: [{ role: "user", content: "Hi" }] })).status,
    ).toBe(200);
    for (const name of ["access-token", "admin-token"] as const) expect(modeOf(tokenFile(name))).toBe(0o600);
    const adminToken = readFileSync(tokenFile("admin-token"), "utf8").trim();
    const organizations = (secret: string) =>
      fetch(`${urlIn(printed)}/admin/v1/organizations`, { headers: { authorization: `Bearer ${secret}` } });
    expect((await organizations(adminToken)).status).toBe(200);
    const { stdout } = await runTollgate(["admin", "token", "--json"], directory);
    expect((await organizations(JSON.parse(stdout).token)).status).toBe(200);
    expect(existsSync(tokenFile("admin-token"))).toBe(false);
    expect((await organizations(adminToken)).status).toBe(401);
    service.child.kill("SIGTERM");
    const ended = await service.ended;
    expect(ended.stdout + ended.stderr).not.toMatch(SECRET);
  });

  test("prints and logs the command that makes another token where the first one cannot be written", async () => {
    mkdirSync(join(tokenFile("access-token"), "full"), { recursive: true });
    const service = start();
    const printed = await service.prints(CURL);
    const failure = /^Token +could not be written to the data directory \(\w+\); to create another: (.+)$/m;
    const pasted = await execute("sh", ["-c", `${failure.exec(printed)?.[1]} --json`], { cwd: directory, env: {} });
    expect(JSON.parse(pasted.stdout)).toMatchObject({ token: expect.stringMatching(SECRET) });
    expect(CURL.exec(printed)?.[0]).toContain('"Authorization: Bearer $TOLLGATE_TOKEN"');
    // With --json, only the log says so.
    service.child.kill("SIGTERM");
    expect((await service.ended).stderr).toMatch(/"a new token could not be written to .* token create --org /);
  });

  test("names each kind of provider and each feature whose packages npm has left out, with the command that installs them", async () => {
    const names = ["@ai-sdk/anthropic", "google-auth-library", "@redis/client", "@opentelemetry/sdk-metrics"];
    const service = start([], { NODE_OPTIONS: asModule(without(names)) });
    const missing = (await service.prints(CURL)).split("\n").filter((line) => line.startsWith("Missing "));
    const command = `node ${ROOT}/scripts/ensure-installed.js`;
    expect(missing).toEqual([
      `Missing       providers of kind anthropic: ${command}`,
      `Missing       providers of kind google-vertex: ${command}`,
      `Missing       metrics and telemetry: ${command}`,
      `Missing       limits shared in Redis: ${command}`,
    ]);
  });

  test("fails where the configuration needs a package that npm has left out", async () => {
    const environment = { NODE_OPTIONS: asModule(without(["@ai-sdk/anthropic"])), ANTHROPIC_API_KEY: "k" };
    const { code, stderr } = await start([], environment).ended;
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining("the kind anthropic needs the package @ai-sdk/anthropic, which is not installed: node "),
    ]);
  });

  test("in a terminal prints both tokens, a line to paste that works, and writes no file", async () => {
    const service = start([], { NODE_OPTIONS: asModule("process.stdout.isTTY = true") });
    const printed = await service.prints(CURL);
    expect(printed).toMatch(/^Token +sk-tg-[0-9A-Za-z]{49} \(shown only once\)$/m);
    expect(printed).toMatch(/^Admin token +tg-admin-[0-9A-Za-z]{49} \(shown only once\)$/m);
    const { stdout } = await execute("sh", ["-c", CURL.exec(printed)?.[0] ?? ""]);
    expect(JSON.parse(stdout).choices[0].message.content).toBe("Hello, Tollgate!");
    for (const name of ["access-token", "admin-token"] as const) expect(existsSync(tokenFile(name))).toBe(false);
  });

  test.each([false, true])(
    "with --json prints one document, with tokens only in a terminal (%s)",
    async (isTerminal) => {
      const service = start(["--json"], isTerminal ? { NODE_OPTIONS: asModule("process.stdout.isTTY = true") } : {});
      const facts = JSON.parse(await service.prints(/\n/));
      expect(facts).toEqual({
        version: expect.stringMatching(/^\d+\.\d+\.\d+/),
        url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
        store: "sqlite",
        models: expect.any(Number),
        organizationId: expect.stringMatching(/^org_/),
        token: isTerminal ? expect.stringMatching(/^sk-tg-/) : null,
        tokenFile: isTerminal ? null : tokenFile("access-token"),
        adminToken: isTerminal ? expect.stringMatching(/^tg-admin-/) : null,
        adminTokenFile: isTerminal ? null : tokenFile("admin-token"),
      });
      expect((await fetch(`${facts.url}/readyz`)).status).toBe(200);
      for (const name of ["access-token", "admin-token"] as const)
        expect(existsSync(tokenFile(name))).toBe(!isTerminal);
    },
  );

  test("commands work while it runs, and their changes apply within a second", async () => {
    const printed = await start().prints(CURL);
    const run = async (...words: string[]) => JSON.parse((await runTollgate([...words, "--json"], directory)).stdout);
    const { id } = await run("org", "create", "Beside", "--credits", "5");
    const { id: tokenId, token } = await run("token", "create", "--org", id);
    const usage = () => fetch(`${urlIn(printed)}/v1/usage`, { headers: { authorization: `Bearer ${token}` } });
    expect(await (await usage()).json()).toMatchObject({ organization_id: id, creditsTotal: 5, creditsAvailable: 5 });
    await run("credits", "grant", "--org", id, "2.5");
    expect(await (await usage()).json()).toMatchObject({ creditsTotal: 7.5, creditsAvailable: 7.5 });
    await run("token", "revoke", tokenId);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    expect((await usage()).status).toBe(401);
    expect(await run("ledger", "verify")).toMatchObject({ ok: true });
  });
});

describe.runIf(hasPostgres)("on PostgreSQL", () => {
  test("a start, its commands and a second service work the same", async () => {
    const database = await createTestDatabase();
    try {
      const environment = { DATABASE_URL: database.url };
      const first = start([], environment);
      const printed = await first.prints(CURL);
      expect(printed).toMatch(/^Store +PostgreSQL at 127\.0\.0\.1:\d+\/test_[0-9a-f]+$/m);
      const second = await start([], environment).prints(CURL);
      const messages = [{ role: "user", content: "Hello" }];
      expect((await complete(printed, { model: "sandbox/echo", messages })).status).toBe(200);
      const usage = await fetch(`${urlIn(second)}/v1/usage`, {
        headers: { authorization: `Bearer ${firstToken()}` },
      });
      expect(await usage.json()).toMatchObject({ creditsTotal: 100, creditsUsed: expect.closeTo(0.00001, 4) });
      const verified = await runCommand(["ledger", "verify", "--json"], directory, environment);
      expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true, holds: 1, events: 1 });
      first.child.kill("SIGTERM");
      expect(await first.ended).toMatchObject({ code: 0 });
    } finally {
      for (const { child, ended } of started) {
        child.kill("SIGKILL");
        await ended;
      }
      await database.drop();
    }
  });
});

describe("a start that cannot be ends with 1 and one line", () => {
  async function line(service: Started): Promise<string> {
    const { code, stdout, stderr } = await service.ended;
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^tollgate: [^\n]+\n$/);
    return stderr;
  }

  test("a taken port", async () => {
    const other: Server = createServer();
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    const { port } = other.address() as AddressInfo;
    expect(await line(start(["--port", String(port)]))).toContain(
      `cannot listen on port ${port} of 127.0.0.1: another program listens there`,
    );
    other.close();
  });

  test("an address that this machine does not have", async () => {
    expect(await line(start(["--host", "192.0.2.1"]))).toContain("this machine has no such address");
  });

  test("a second service on the data directory", async () => {
    await start().prints(CURL);
    expect(await line(start())).toContain("Another Tollgate service is running on the data directory");
  });

  test("a database that cannot be reached", async () => {
    writeFileSync(join(directory, "tollgate.yaml"), "server: { storeWaitSeconds: 0 }");
    const told = await line(start([], { DATABASE_URL: "postgres://someone:secret@127.0.0.1:1/books" }));
    expect(told).toContain("127.0.0.1:1");
    expect(told).not.toContain("secret");
  });

  test("a database that does not come while it is waited for", async () => {
    writeFileSync(join(directory, "tollgate.yaml"), "{ server: { storeWaitSeconds: 1.5 }, log: { level: error } }");
    const service = start([], { DATABASE_URL: "postgres://someone:secret@127.0.0.1:1/books" });
    const { code, stdout, stderr } = await service.ended;
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^The database at 127\.0\.0\.1:1\/books cannot be used: .* It is waited for, at most 1\.5 s; .*\n$/,
    );
    expect(stderr).toMatch(/^tollgate: The database at 127\.0\.0\.1:1\/books cannot be used: [^\n]+\n$/);
  });

  test("a mistake in the environment", async () => {
    expect(await line(start([], { LOG_LEVEL: "loud" }))).toContain(
      'LOG_LEVEL is "loud", but must be one of: fatal, error',
    );
  });
});

describe("a signal", () => {
  test("lets a running stream end, charges it, and exits with 0", async () => {
    const service = start();
    const printed = await service.prints(CURL);
    const body = { model: "sandbox/fault", messages: [{ role: "user", content: "silence after 5 tokens 1s" }] };
    const answer = await complete(printed, { ...body, stream: true });
    expect(answer.status).toBe(200);
    service.child.kill("SIGTERM");
    expect(await answer.text()).toContain("data: [DONE]");
    const { code, signal } = await service.ended;
    expect({ code, signal }).toEqual({ code: 0, signal: null });
    const verified = await runCommand(["ledger", "verify", "--json"], directory);
    expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true, holds: 1, events: 1 });
  });

  test.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const)("repeated ends at once: %s", async (signal, exitCode) => {
    const service = start();
    const printed = await service.prints(CURL);
    const body = { model: "sandbox/fault", messages: [{ role: "user", content: "silence after 5 tokens 60s" }] };
    const answer = await complete(printed, { ...body, stream: true });
    service.child.kill(signal);
    await expect.poll(() => service.stderr()).toContain("stopping: ");
    // Longer than two that come close together are taken for one.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(service.child.exitCode).toBeNull();
    service.child.kill(signal);
    expect(await service.ended).toMatchObject({ code: exitCode });
    await expect(answer.text()).rejects.toThrow();
  });

  test("SIGHUP neither stops a service nor cuts off a stream, also while it starts", async () => {
    const service = start();
    await expect.poll(() => existsSync(join(directory, ".tollgate", "tollgate.db"))).toBe(true);
    service.child.kill("SIGHUP");
    const printed = await service.prints(CURL);
    const body = { model: "sandbox/fault", messages: [{ role: "user", content: "silence after 5 tokens 1s" }] };
    const answer = await complete(printed, { ...body, stream: true });
    service.child.kill("SIGHUP");
    expect(await answer.text()).toContain("data: [DONE]");
    const reloads = () =>
      service.stderr().split('"msg":"the configuration was reloaded: nothing has changed"').length - 1;
    await expect.poll(reloads).toBe(2);
    expect(service.child.exitCode).toBeNull();
  });
});

test("a defect is logged, running answers end and are charged, and the exit code is 1", async () => {
  const trap = "process.on('SIGUSR2', () => { throw new Error('a defect of this test'); })";
  const service = start([], { NODE_OPTIONS: asModule(trap) });
  const printed = await service.prints(CURL);
  const body = { model: "sandbox/fault", messages: [{ role: "user", content: "silence after 5 tokens 1s" }] };
  const answer = await complete(printed, { ...body, stream: true });
  service.child.kill("SIGUSR2");
  expect(await answer.text()).toContain("data: [DONE]");
  const { code, stderr } = await service.ended;
  expect(code).toBe(1);
  expect(stderr).toContain("a defect of this test");
  const verified = await runCommand(["ledger", "verify", "--json"], directory);
  expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true, holds: 1, events: 1 });
});
