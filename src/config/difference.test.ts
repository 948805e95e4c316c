import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { loadConfig } from "../config.ts";
import { configurationHash, differenceOf } from "./difference.ts";

const provider = (fields: object) => ({ id: "a", kind: "openai-compatible", baseUrl: "http://a/v1", ...fields });
const model = (id: string, fields: object = {}) => ({
  id,
  routes: [{ provider: "a", model: "x" }],
  price: { input: "1", output: "2" },
  ...fields,
});
const load = (settings: object, environment: Record<string, string> = {}) => {
  const providerKeyVariables = ["OPENAI_API_KEY"];
  return loadConfig({ environment, readFile: () => JSON.stringify(settings), providerKeyVariables });
};
const between = (before: object, after: object) => differenceOf(load(before), load(after));

test("equal configurations have no difference", () => {
  const settings = { providers: [provider({ apiKey: "k" })], models: [model("m")] };
  expect(between(settings, settings)).toEqual({ atReload: {}, atStart: {} });
});

test("each changed key is named, and entries of lists have their ids", () => {
  const before = { limits: { tokensPerMinute: 5 }, providers: [provider({})], models: [model("m"), model("n")] };
  const after = {
    limits: { requestsPerMinute: 7 },
    providers: [provider({ timeouts: { idleMs: 9 } }), provider({ id: "b" })],
    models: [model("n", { price: { input: "1.50", output: "2" }, routes: [{ provider: "a", model: "y" }] })],
    dataDir: "/elsewhere",
    ledger: { holdSeconds: 60 },
  };
  const { atReload, atStart } = between(before, after);
  expect(atReload).toEqual({
    "limits.tokensPerMinute": "changed",
    "limits.requestsPerMinute": "changed",
    "providers[a].timeouts.idleMs": "changed",
    "providers[b]": "added",
    "models[m]": "removed",
    "models[n].price.input": "changed",
    "models[n].routes[0].model": "changed",
  });
  expect(Object.keys(atStart).sort()).toEqual(["dataDir", "ledger.holdSeconds"]);
});

test("another order of the models is a difference", () => {
  const before = { providers: [provider({})], models: [model("m"), model("n")] };
  expect(between(before, { ...before, models: [model("n"), model("m")] }).atReload).toEqual({ models: "changed" });
});

test("secrets are only named", () => {
  const before = { providers: [provider({ apiKey: "canary-1", headers: { "x-a": "canary-2", "x-b": "canary-3" } })] };
  const after = { providers: [provider({ apiKey: "canary-4", headers: { "x-a": "canary-5", "x-c": "canary-6" } })] };
  expect(between(before, after).atReload).toEqual({
    "providers[a].apiKey": "changed",
    "providers[a].headers.x-a": "changed",
    "providers[a].headers.x-b": "removed",
    "providers[a].headers.x-c": "added",
  });
});

test("texts with a variable are only named, whatever their key", () => {
  const settings = { providers: [provider({ baseUrl: `http://a/\${PART}` })] };
  const difference = differenceOf(load(settings, { PART: "canary-1" }), load(settings, { PART: "canary-2" }));
  expect(difference.atReload).toEqual({ "providers[a].baseUrl": "changed" });
});

test("keys of providers and proxies in the environment are only named", () => {
  const after = load({}, { OPENAI_API_KEY: "canary-1", HTTPS_PROXY: "http://u:canary-2@h:1" });
  expect(differenceOf(load({}), after).atReload).toEqual({ OPENAI_API_KEY: "added", HTTPS_PROXY: "added" });
});

test.each([
  ["postgres://u:one@h/d", "postgres://u:two@h/d", { atReload: { database: "changed" }, atStart: {} }],
  ["postgres://h/d?password=one", "postgres://h/d?password=two", { atReload: { database: "changed" }, atStart: {} }],
  ["postgres://u:one@h/d", "postgres://u:one@other/d", { atReload: {}, atStart: { database: "changed" } }],
])("of the database, only the password takes effect at a reload: %s to %s", (before, after, expected) => {
  expect(between({ database: before }, { database: after })).toEqual(expected);
});

test("the content of a file with credentials is only named", () => {
  const directory = mkdtempSync(join(tmpdir(), "tollgate-difference-"));
  const credentialsFile = join(directory, "credentials.json");
  const loadWith = (content: string) => {
    writeFileSync(credentialsFile, content);
    return load({ providers: [provider({ kind: "vertex", credentialsFile })] });
  };
  const difference = differenceOf(loadWith("canary-1"), loadWith("canary-2"));
  rmSync(directory, { recursive: true });
  expect(difference).toEqual({
    atReload: { "providers[a].credentialsFile": "changed" },
    atStart: {},
  });
});

const hashOf = (settings: object, environment: Record<string, string> = {}) =>
  configurationHash(load(settings, environment));

test("the hash of a configuration is the same for other secrets, and for what is each node's own", () => {
  const reference = (name: string) => `$\{${name}}`;
  const withSecret = (secret: string) => ({
    database: `postgres://tollgate:${secret}@db/books?password=${secret}`,
    redis: `redis://:${secret}@cache:6379`,
    metrics: { token: `token-of-metrics-${secret}` },
    telemetry: { endpoint: "http://collector:4318", headers: { "x-key": secret } },
    providers: [provider({ apiKey: secret, headers: { "x-own": secret, "x-further": reference("HEADER") } })],
    models: [model("m", { description: reference("SECRET_NAME") })],
  });
  const environment = (secret: string) => ({
    ...{ OPENAI_API_KEY: secret, HEADER: secret, SECRET_NAME: `name-${secret}` },
    HTTPS_PROXY: `http://user:${secret}@proxy:3128`,
  });
  const hash = hashOf(withSecret("canary-one"), environment("canary-one"));
  expect(Number.isSafeInteger(hash)).toBe(true);
  expect(hashOf(withSecret("canary-two"), environment("canary-two"))).toBe(hash);
  const own = { dataDir: "/b", server: { host: "0.0.0.0", port: 1 }, metrics: { host: "::1", port: 2 } };
  const named = { ...own, telemetry: { resourceAttributes: { "host.name": "b" } } };
  expect(hashOf(named)).toBe(hashOf({ telemetry: { resourceAttributes: { "host.name": "a" } } }));
});

test.each([
  ["a limit", { limits: { requestsPerMinute: 7 } }],
  ["a price", { providers: [provider({})], models: [model("m", { price: { input: "1", output: "2.5" } })] }],
  ["the order of the models", { providers: [provider({})], models: [model("n"), model("m")] }],
  ["a key that is missing", { providers: [provider({ apiKey: "k" })], models: [model("m"), model("n")] }],
  ["another database", { database: "postgres://tollgate:secret@other/books" }],
])("the hash of a configuration changes with %s", (_, settings) => {
  const same = { providers: [provider({})], models: [model("m"), model("n")] };
  expect(hashOf({ ...same, ...settings })).not.toBe(hashOf(same));
});
