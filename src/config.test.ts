import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { lineOf, load, noFile } from "../test/support/config.ts";
import type { ConfigSources } from "./config/sources.ts";
import { loadConfig, loadGroup } from "./config.ts";
import { holdEndsWithinMs } from "./ledger/verify.ts";

describe("precedence", () => {
  test("without any source, the defaults apply", () => {
    expect(loadConfig({ environment: {}, readFile: noFile })).toMatchObject({
      server: {
        host: "127.0.0.1",
        port: 8484,
        trustProxy: false,
        bodyLimitBytes: 20_971_520,
        bodiesInFlightBytes: 268_435_456,
        maxConnections: 16_384,
        overload: { eventLoopDelayMs: 250, memoryShare: 0.9 },
        drainSeconds: 600,
      },
      database: null,
      credits: { perDollar: "1", markup: "0" },
      limits: { requestsPerMinute: 600, tokensPerMinute: 1_000_000, concurrentRequests: 100 },
      playground: { requestsPerMinute: 10, tokensPerDay: 100_000, maxTokens: 512 },
      completions: { messages: "reply" },
      ledger: { holdSeconds: 120, renewSeconds: 10, sweepSeconds: 10, recoverySeconds: 480 },
      log: { level: "info" },
      providers: [],
      models: [],
      file: null,
      providerKeys: {},
    });
  });

  test("flags override the environment, which overrides the file, which overrides the defaults", () => {
    const file = "server: { port: 1, host: file.example }\ndataDir: from-file\nlog: { level: warn }";
    const environment = { PORT: "2", HOST: "environment.example" };
    const config = load(file, environment, { port: "3" });
    expect(config.server).toMatchObject({ port: 3, host: "environment.example", drainSeconds: 600 });
    expect(config.log.level).toBe("warn");
    expect(config.dataDir).toMatch(/\/from-file$/);
  });

  test("every variable sets its key, and an empty one counts as not set", () => {
    const environment = {
      PORT: "9",
      HOST: "0.0.0.0",
      DATABASE_URL: "postgres://u@h/d",
      TOLLGATE_DATA_DIR: "/data",
      LOG_LEVEL: "debug",
      SOME_API_KEY: "k",
      HTTPS_PROXY: "http://proxy:3128",
      REDIS_URL: "",
    };
    const sources: ConfigSources = { environment, readFile: noFile, providerKeyVariables: ["SOME_API_KEY", "OTHER"] };
    expect(loadConfig(sources)).toMatchObject({
      server: { port: 9, host: "0.0.0.0" },
      database: "postgres://u@h/d",
      dataDir: "/data",
      log: { level: "debug" },
      providerKeys: { SOME_API_KEY: "k" },
      proxyVariables: { HTTPS_PROXY: "http://proxy:3128" },
    });
    const empty = { PORT: "", HOST: "", DATABASE_URL: "", SOME_API_KEY: "" };
    expect(loadConfig({ ...sources, environment: empty })).toMatchObject({
      server: { port: 8484 },
      database: null,
      providerKeys: {},
    });
  });

  test("prices keep the digits that were written", () => {
    const config = load(`
models:
  - id: m
    routes: [{ provider: p, model: m }]
    price: { input: 0.12345678901234567890, cachedInput: "0.10", output: 2.00 }
credits: { perDollar: 1000, markup: 1e-7 }`);
    expect(config.models[0]?.price).toEqual({ input: "0.12345678901234567890", cachedInput: "0.10", output: "2.00" });
    expect(config.credits.markup).toBe("1e-7");
  });

  test("variables are replaced, also in numbers, and $${ becomes a literal ${", () => {
    const config = load(
      `
server: { port: "\${P}" }
providers:
  - { id: a, kind: k, apiKey: "key-\${KEY}", headers: { x-one: "$\${KEY}" } }`,
      { P: "99", KEY: "1234" },
    );
    expect(config.server.port).toBe(99);
    expect(config.providers[0]).toMatchObject({
      apiKey: "key-1234",
      headers: { "x-one": `\${KEY}` },
      baseUrl: null,
      timeouts: { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 },
    });
  });

  test("a key without a value counts as absent", () => {
    expect(load("server:\ndatabase:\nmodels:\n")).toMatchObject({ server: { port: 8484 }, database: null, models: [] });
  });

  test("the named file is read from the disk, by the flag before the variable", () => {
    const directory = mkdtempSync(join(tmpdir(), "tollgate-config-"));
    try {
      const path = join(directory, "own.yaml");
      writeFileSync(path, "server: { port: 4 }");
      const config = loadConfig({ flags: { config: path }, environment: { TOLLGATE_CONFIG: "elsewhere.yaml" } });
      expect(config).toMatchObject({ file: path, server: { port: 4 } });
      expect(lineOf(() => loadConfig({ environment: { TOLLGATE_CONFIG: directory } }))).toBe(
        `${directory}: the configuration file cannot be read: it is a directory`,
      );
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

test("a secret that is not read has no mistake in its format, and the rest of its group is checked", () => {
  const readFile = () => `warnings: { smtp: "\${SMTP_URL}", mailFrom: a@example.com, forecastDays: x }`;
  const sources = { environment: {}, secrets: "unread", readFile } as const;
  const warnings = { smtp: `\${SMTP_URL}`, mailFrom: "a@example.com" };
  expect(loadConfig({ ...sources, readFile: () => readFile().replace(": x", ": 3") })).toMatchObject({ warnings });
  expect(() => loadConfig(sources)).toThrow('warnings.forecastDays is "x"');
  expect(() => loadGroup(sources, "warnings")).toThrow('warnings.forecastDays is "x"');
});

const TRUST_PROXY =
  'false, the addresses and networks of the proxies in one text, such as "10.0.0.0/8, 127.0.0.1", or the number of proxies, 1 to 32.';
const providers = "providers:\n  - id: a\n    kind: k\n";
const model = "models:\n  - id: a\n    routes: [{ provider: p, model: m }]\n";
const groups =
  "server, dataDir, database, redis, credits, limits, playground, identity, completions, conversations, responses, retention, warnings, statements, payments, ledger, log, metrics, telemetry, sandbox, providers, models, aliases, priceLists";

test("without a configuration, a hold ends within the time that the stores allow by default", () => {
  // The constant of stores/queries/books.ts, which a command uses that reads no schema of the configuration.
  expect(holdEndsWithinMs(loadGroup({ environment: {}, readFile: noFile }, "ledger"))).toBe(510_000);
});

describe("a mistake in the file is reported in one line", () => {
  test.each([
    ["server: { porr: 1 }", "1: server.porr is not a known setting. Did you mean server.port?"],
    ["port: 1", `1: port is not a known setting. Did you mean server.port?`],
    ["data_dir: x", `1: data_dir is not a known setting. Did you mean dataDir?`],
    ["colour: red", `1: colour is not a known setting. Known settings: ${groups}.`],
    ["\n\nserver:\n  port: abc", '3: server.port is "abc", but must be an integer from 0 to 65535.'],
    ["server: { port: 1.5 }", "1: server.port is 1.5, but must be an integer from 0 to 65535."],
    ["server: { port: 65536 }", "1: server.port is 65536, but must be an integer from 0 to 65535."],
    [
      "server: 3",
      "1: server is 3, but must be a group of settings: host, port, trustProxy, basePath, publicUrl, keyInQuery, bodyLimitBytes, bodiesInFlightBytes, maxConnections, overload, drainDelaySeconds, drainSeconds, storeWaitSeconds.",
    ],
    [
      'server: { basePath: "tollgate" }',
      '1: server.basePath is "tollgate", but must be a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself.',
    ],
    [
      'server: { basePath: "/tollgate/" }',
      '1: server.basePath is "/tollgate/", but must be a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself.',
    ],
    [
      'server: { basePath: "/a/../b" }',
      '1: server.basePath is "/a/../b", but must be a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself.',
    ],
    [
      'server: { basePath: "/v1" }',
      '1: server.basePath is "/v1", but must be a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself.',
    ],
    [
      'server: { basePath: "//evil.example" }',
      '1: server.basePath is "//evil.example", but must be a path such as /tollgate, without a slash at its end, that does not begin with a path of the service itself.',
    ],
    ["server: { trustProxy: 10.0.0.0/33 }", `1: server.trustProxy is "10.0.0.0/33", but must be ${TRUST_PROXY}`],
    ["server: { trustProxy: true }", `1: server.trustProxy is true, but must be ${TRUST_PROXY}`],
    ["server: { trustProxy: 0 }", `1: server.trustProxy is 0, but must be ${TRUST_PROXY}`],
    ["server: { trustProxy: 1.5 }", `1: server.trustProxy is 1.5, but must be ${TRUST_PROXY}`],
    ["server: { trustProxy: everyone }", `1: server.trustProxy is "everyone", but must be ${TRUST_PROXY}`],
    [
      "database: mysql://root:secret@h/d",
      "1: database is mysql://…, but must be a postgres:// or postgresql:// address.",
    ],
    ["credits: { perDollar: 0 }", '1: credits.perDollar is "0", but must be a decimal number above 0, such as 1.'],
    [
      "credits: { perDollar: 1000000, markup: 1000 }",
      "1: credits is too high. A dollar and its markup must be at most a billion credits.",
    ],
    ["credits: { markup: -1 }", '1: credits.markup is "-1", but must be a decimal number, 0 or more, such as 0.25.'],
    [
      "limits: { requestsPerMinute: 0 }",
      "1: limits.requestsPerMinute is 0, but must be an integer from 1 to 1000000000.",
    ],
    ["completions: { messages: all }", '1: completions.messages is "all", but must be one of: reply, conversation.'],
    ["log: { level: loud }", '1: log.level is "loud", but must be one of: fatal, error, warn, info, debug, silent.'],
    ["ledger: { renewSeconds: 120 }", "1: ledger.renewSeconds is 120, but must be less than ledger.holdSeconds, 120."],
    ["models: 3", "1: models is 3, but must be a list."],
    [
      "providers: [3]",
      "1: providers[0] is 3, but must be a group of settings: id, kind, baseUrl, apiKey, region, accessKeyId, secretAccessKey, sessionToken, project, location, credentialsFile, resourceName, headers, traceparent, promptCaching, timeouts.",
    ],
    [
      `${providers}    baseUrl: ftp://h`,
      '4: providers[0].baseUrl is "ftp://h", but must be an http:// or https:// address without a user name or password.',
    ],
    [`${providers}    apiKey: 123456`, "4: providers[0].apiKey is a number, but must be text that is not empty."],
    [
      `${providers}    apiKey: \${NOWHERE}`,
      "4: providers[0].apiKey needs the environment variable NOWHERE, which is not set.",
    ],
    [
      `${providers}    apiKey: \${NOWHERE`,
      `4: providers[0].apiKey contains \${NOWHERE. Write \${NAME} with the name of a variable, \${file:PATH} with the path of a file, or $\${ for a literal \${.`,
    ],
    [
      `${providers}    headers: { "a b": x }`,
      '4: providers[0].headers has the key "a b", but must be header names and their values, as text.',
    ],
    [
      `${providers}    headers: { a: "x\\ny" }`,
      "4: providers[0].headers.a is other text, but must be text in one line.",
    ],
    [`${providers}  - { id: a, kind: k }`, '4: providers[1].id is "a" a second time. Ids must be unique.'],
    [
      `${providers}    timeouts: { idleMs: 0 }`,
      "4: providers[0].timeouts.idleMs is 0, but must be an integer from 1 to 3600000.",
    ],
    ["models: [{ id: a }]", "1: models[0].routes is missing, but must be a list with at least one entry."],
    [
      "models: [{ id: a, routes: [] }]",
      "1: models[0].routes is an empty list, but must be a list with at least one entry.",
    ],
    [
      `${model}    price: { output: 1 }`,
      "4: models[0].price.input is missing, but must be a decimal number, 0 or more, such as 0.25.",
    ],
    [
      `${model}    price: [{ from: soon, input: 1, output: 1 }]`,
      '4: models[0].price[0].from is "soon", but must be a date as YYYY-MM-DD.',
    ],
    [
      `${model}    price: { output: 1 }`,
      "4: models[0].price.input is missing, but must be a decimal number, 0 or more, such as 0.25.",
    ],
    [
      `${model}    price: []`,
      "4: models[0].price is an empty list, but must be input and output, or a list of such prices with the day (from) on which each takes effect.",
    ],
    [
      "models: [{ id: a, routes: [{ provider: p, model: m, weight: 0 }] }]",
      "1: models[0].routes[0].weight is 0, but must be an integer from 1 to 1000.",
    ],
    [
      `${model}    price: { input: .inf, output: 1 }`,
      '4: models[0].price.input is "Infinity", but must be a decimal number, 0 or more, such as 0.25.',
    ],
    [
      `${model}    cutoffDate: 2025-02-30`,
      '4: models[0].cutoffDate is "2025-02-30", but must be a date as YYYY-MM-DD.',
    ],
    [
      `${model}    capabilities: [chat, chat]`,
      "4: models[0].capabilities is a list with an entry twice, but must be a list of different entries.",
    ],
    ["a: 1\na: 2", "2: this is not valid YAML: Map keys must be unique"],
    [
      "server: [1",
      "1: this is not valid YAML: Flow sequence in block collection must be sufficiently indented and end with a ]",
    ],
    ["server: !own x", "1: this is not valid YAML: Unresolved tag: !own"],
  ])("%j", (text, line) => {
    expect(lineOf(() => load(text))).toBe(`tollgate.yaml:${line}`);
  });

  test("all mistakes of a file are reported at once, in the order of their lines", () => {
    const text = `models:
  - { id: a, routes: [], colour: red }
  - { routes: [{ provider: p }], price: { input: -1, output: x } }
  - { id: c, routes: [{ provider: p, model: m }], capabilities: [chat, chat] }
server: { porr: 1, prot: 2 }
log:
  level: loud`;
    const decimal = "a decimal number, 0 or more, such as 0.25.";
    const name = "1 to 200 characters without spaces.";
    const lines = [
      /^2: models\[0\]\.colour is not a known setting\. Known settings: /,
      "2: models[0].routes is an empty list, but must be a list with at least one entry.",
      `3: models[1].id is missing, but must be ${name}`,
      `3: models[1].price.input is "-1", but must be ${decimal}`,
      `3: models[1].price.output is "x", but must be ${decimal}`,
      /^3: models\[1\]\.routes\[0\]\.model is missing, but must be /,
      "4: models[2].capabilities is a list with an entry twice, but must be a list of different entries.",
      "5: server.porr is not a known setting. Did you mean server.port?",
      "5: server.prot is not a known setting. Did you mean server.port?",
      '7: log.level is "loud", but must be one of: fatal, error, warn, info, debug, silent.',
    ];
    let message = "";
    try {
      load(text);
    } catch (error) {
      message = (error as Error).message;
    }
    const found = message.split("\n").map((line) => line.replace(/^tollgate\.yaml:/, ""));
    expect(found).toEqual(lines.map((line) => (typeof line === "string" ? line : expect.stringMatching(line))));
  });

  test("a file that is a list is refused", () => {
    expect(lineOf(() => load("- 1"))).toBe("tollgate.yaml is a list, but must be a group of settings.");
  });
});

describe("a mistake elsewhere is reported in one line", () => {
  test.each([
    [{ PORT: "abc" }, {}, 'PORT is "abc", but must be an integer from 0 to 65535.'],
    [{ PORT: "abc" }, { port: "1" }, 'PORT is "abc", but must be an integer from 0 to 65535.'],
    [{}, { port: "0x50" }, '--port is "0x50", but must be an integer from 0 to 65535.'],
    [{}, { host: "a b" }, '--host is "a b", but must be a host name or an IP address.'],
    [{}, { dataDir: "" }, '--data-dir is "", but must be text that is not empty.'],
    [{ LOG_LEVEL: "x" }, {}, 'LOG_LEVEL is "x", but must be one of: fatal, error, warn, info, debug, silent.'],
    [{ DATABASE_URL: "secret" }, {}, "DATABASE_URL is other text, but must be a postgres:// or postgresql:// address."],
  ])("%j %j", (environment, flags, line) => {
    expect(lineOf(() => loadConfig({ environment, flags, readFile: noFile }))).toBe(line);
  });

  test("a named file that does not exist is refused", () => {
    expect(lineOf(() => loadConfig({ environment: {}, flags: { config: "gone.yaml" }, readFile: noFile }))).toBe(
      "gone.yaml: the configuration file cannot be read: there is no such file",
    );
  });

  test.each([
    ["secret"],
    ["http://h"],
    ["redis://"],
    ["redis://:secret@h/zero"],
    ["redis://:secret@h/0?tls=true"],
    ["redis://:secret%@h"],
    ["rediss://user:sec/ret@h:6379"],
  ])("REDIS_URL %j is refused without a secret", (url) => {
    const line = lineOf(() => loadConfig({ environment: { REDIS_URL: url }, readFile: noFile }));
    expect(line).toMatch(
      /^REDIS_URL is .*, but must be a redis:\/\/ or rediss:\/\/ address, such as redis:\/\/127\.0\.0\.1:6379\/0\.$/,
    );
    expect(line).not.toMatch(/sec(ret)?/);
  });

  test.each(["redis://h", "rediss://user:p%40ss@redis.internal:6380/15", "redis://[::1]:6379/"])(
    "REDIS_URL %j is accepted",
    (url) => {
      expect(loadConfig({ environment: { REDIS_URL: url }, readFile: noFile }).redis).toBe(url);
    },
  );
});

describe("telemetry", () => {
  test("the standard variables of OpenTelemetry set its keys", () => {
    const environment = {
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318",
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20abc, x-tenant=one=two",
      OTEL_TRACES_EXPORTER: "none",
      OTEL_SERVICE_NAME: "gateway",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=staging,",
      OTEL_TRACES_SAMPLER: "traceidratio",
      OTEL_TRACES_SAMPLER_ARG: "0.25",
    };
    expect(load("telemetry: { serviceName: other, metricsSeconds: 5 }", environment).telemetry).toEqual({
      endpoint: "http://collector:4318",
      headers: { authorization: "Bearer abc", "x-tenant": "one=two" },
      metrics: "otlp",
      traces: "none",
      metricsSeconds: 5,
      serviceName: "gateway",
      resourceAttributes: { "deployment.environment.name": "staging" },
      sampler: "traceidratio",
      sampleRatio: 0.25,
    });
  });

  test.each([
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }, 'OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4318" }, "OTEL_EXPORTER_OTLP_ENDPOINT is"],
    [{ OTEL_EXPORTER_OTLP_HEADERS: "my-secret" }, "OTEL_EXPORTER_OTLP_HEADERS is other text"],
    [{ OTEL_RESOURCE_ATTRIBUTES: "a=%E0%A4%A" }, "OTEL_RESOURCE_ATTRIBUTES is"],
    [{ OTEL_TRACES_SAMPLER: "jaeger_remote" }, "OTEL_TRACES_SAMPLER is"],
    [{ OTEL_TRACES_SAMPLER_ARG: "2" }, "OTEL_TRACES_SAMPLER_ARG is 2, but must be a number from 0 to 1."],
    [{ OTEL_METRICS_EXPORTER: "prometheus" }, 'OTEL_METRICS_EXPORTER is "prometheus", but must be one of: otlp, none.'],
  ])("%j is refused", (environment, message) => {
    const line = lineOf(() => load("", environment));
    expect(line).toContain(message);
    expect(line).not.toContain("my-secret");
  });

  test("a short token for the metrics is refused, and not shown", () => {
    expect(lineOf(() => load("metrics: { token: short-secret }"))).toBe(
      "tollgate.yaml:1: metrics.token is other text, but must be at least 16 letters, digits and any of -._~+/.",
    );
  });
});
