import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { lineOf, load, noFile } from "../../test/support/config.ts";
import { loadConfig } from "../config.ts";

describe("YAML", () => {
  test("merge keys and aliases are applied, and prices keep their digits", () => {
    const { providers, models } = load(`
providers:
  - { id: a, kind: openai-compatible, baseUrl: "http://a/v1", timeouts: &patient { connectMs: 9000, idleMs: 7 } }
  - { id: b, kind: openai-compatible, baseUrl: "http://b/v1", timeouts: { <<: *patient, idleMs: 8 } }
models:
  - &first { id: m, routes: [{ provider: a, model: x }], price: &price { input: 0.10, output: 1.00 } }
  - { <<: *first, id: n, price: { <<: *price, output: 0.000000100 } }
  - { <<: *first, id: o, price: *price }`);
    expect(providers.map(({ timeouts }) => [timeouts.connectMs, timeouts.idleMs])).toEqual([
      [9000, 7],
      [9000, 8],
    ]);
    expect(models.map(({ id, price }) => [id, price])).toEqual([
      ["m", { input: "0.10", output: "1.00" }],
      ["n", { input: "0.10", output: "0.000000100" }],
      ["o", { input: "0.10", output: "1.00" }],
    ]);
  });

  const bomb = `a: &a [${"x,".repeat(50)}]\nb: &b [${"*a,".repeat(50)}]\nc: &c [${"*b,".repeat(50)}]\nd: [${"*c,".repeat(50)}]`;
  test.each([
    [
      "an alias without its anchor",
      "server: *gone",
      "Unresolved alias (the anchor must be set before the alias): gone",
    ],
    ["aliases that multiply", bomb, "Excessive alias count indicates a resource exhaustion attack"],
    ["a merge of something else than keys", "server: { <<: 3 }", "Merge sources must be maps or map aliases"],
    ["a key that stands twice", "log: {}\nlog: {}", "Map keys must be unique"],
    [
      "two documents",
      "log: {}\n---\nlog: {}",
      "Source contains multiple documents; please use YAML.parseAllDocuments()",
    ],
  ])("%s is refused in one line", (_what, text, reason) => {
    expect(lineOf(() => load(text))).toMatch(/^tollgate\.yaml(:\d+)?: this is not valid YAML: /);
    expect(lineOf(() => load(text))).toContain(reason);
  });

  test("values that are nested too deeply are refused in one line", () => {
    expect(lineOf(() => load("[".repeat(200_000)))).toMatch(/^tollgate\.yaml(:1)?: /);
  });

  test("an alias within its own anchor is refused in one line", () => {
    expect(lineOf(() => load("x: &a [*a]"))).toMatch(/^tollgate\.yaml(:1)?: the values .* contain themselves\.$/);
  });
});

describe("the file", () => {
  const directory = mkdtempSync(join(tmpdir(), "tollgate-config-"));
  const path = join(directory, "own.yaml");
  afterAll(() => rmSync(directory, { recursive: true }));
  const read = (content: string | Buffer) => {
    writeFileSync(path, content);
    return loadConfig({ environment: {}, flags: { config: path } });
  };

  test("the file can begin with a byte order mark and have Windows line endings", () => {
    expect(read("\uFEFFserver:\r\n  port: 7\r\n").server.port).toBe(7);
  });

  test.each([
    ["NUL characters", Buffer.from("server: {}\0"), "is not text in UTF-8"],
    ["another encoding", Buffer.from([0xff, 0xfe, 0x61, 0]), "is not text in UTF-8"],
    ["more than 4 MiB", Buffer.alloc(4 * 1024 * 1024 + 1, "#"), "is larger than 4194304 bytes"],
  ])("with %s is refused", (_what, content, reason) => {
    expect(lineOf(() => read(content))).toBe(`${path}: the configuration file ${reason}`);
  });

  test.each([
    ["/dev/zero", "the configuration file is larger than 4194304 bytes"],
    ["/dev/null/file", "the configuration file cannot be read: a part of its path is not a directory"],
    [directory, "the configuration file cannot be read: it is a directory"],
  ])("%s is refused", (name, reason) => {
    expect(lineOf(() => loadConfig({ environment: {}, flags: { config: name } }))).toBe(`${name}: ${reason}`);
  });
});

describe("addresses", () => {
  const provider = (baseUrl: string) =>
    `providers: [{ id: p, kind: openai-compatible, baseUrl: ${JSON.stringify(baseUrl)} }]`;

  test.each([
    ["http://user:s3cret@h/v1", "http://…@h/v1"],
    ["ftp://user:s3cret@h/v1?key=s3cret", "ftp://…@h/v1?…"],
    ["http://user:s3/cret@h", "http://…@h"],
    ["user:s3cret@h/v1", "…@h/v1"],
  ])("the password in a base URL is never shown: %s", (baseUrl, shown) => {
    const line = lineOf(() => load(provider(baseUrl)));
    expect(line).toContain(`baseUrl is "${shown}", but must be an http:// or https:// address without`);
    expect(line).not.toMatch(/s3|cret/);
  });

  test.each(["nonsense", "proxy:3128", "socks5://u:s3cret@h", "u:s3cret@proxy:3128", "http://"])(
    "a proxy that is none is refused: HTTPS_PROXY=%s",
    (address) => {
      for (const name of ["HTTPS_PROXY", "http_proxy"]) {
        const line = lineOf(() => loadConfig({ environment: { [name]: address }, readFile: noFile }));
        expect(line).toMatch(
          new RegExp(`^${name} is ".*", but must be the http:// or https:// address of a proxy\\.$`),
        );
        expect(line).not.toContain("s3cret");
      }
    },
  );

  test.each(["999.1.1.1", "1.2.3", "1.2.3.4.5", "::zz", "a b"])("an invalid host is refused: HOST=%s", (host) => {
    const line = lineOf(() => loadConfig({ environment: { HOST: host }, readFile: noFile }));
    expect(line).toBe(`HOST is ${JSON.stringify(host)}, but must be a host name or an IP address.`);
  });

  test.each(["postgres://u:a/s3cret@h/db", "postgres://u:12/s3cret@h/db", "h:5432/db", "postgres://h:99999/db"])(
    "a database that is none is refused: DATABASE_URL=%s",
    (address) => {
      const line = lineOf(() => loadConfig({ environment: { DATABASE_URL: address }, readFile: noFile }));
      expect(line).toMatch(/^DATABASE_URL is .*, but must be a postgres:\/\/ or postgresql:\/\/ address\.$/);
      expect(line).not.toContain("s3cret");
    },
  );
});
