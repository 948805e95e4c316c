import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { parse } from "yaml";
import { operator } from "../support/admin.ts";
import { ROOT, readDocuments, tableOf } from "../support/documents.ts";
import { type ExportedMetric, readExposition, sumOf } from "../support/prometheus.ts";
import {
  freePort,
  makeDirectory,
  makeOrganization,
  type Organization,
  type ServiceProcess,
  send,
  startProcess,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const COMPLETIONS = "/v1/chat/completions";
/** About as many tokens as the upstream reports. */
const PROMPT = "hello there ".repeat(500);
const LONG = { timeout: 60_000 };
const RULES = join(ROOT, "deploy/prometheus");

let upstream: Upstream;
let service: ServiceProcess;
let organization: Organization;
let metricsUrl: string;

beforeAll(async () => {
  upstream = await startUpstream();
  const usage = { prompt_tokens: 1000, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 600 } };
  upstream.behave("known", answering({ words: ["one ", "two"], usage: { ...usage, cost: 0.25 } }));
  upstream.behave("fine", answering({ words: ["one ", "two"], usage }));
  upstream.behave("broken", ({ response }) => sendJson(response, 500, { error: { message: "no" } }));
  const price = { input: 1000, cachedInput: 100, output: 2000 };
  const port = await freePort();
  metricsUrl = `http://127.0.0.1:${port}/metrics`;
  service = await startProcess({
    config: {
      metrics: { port },
      credits: { perDollar: 2 },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl }],
      models: ["known", "fine", "broken"].map((id) => ({ id, price, routes: [{ provider: "up", model: id }] })),
    },
  });
  organization = await makeOrganization(service, "100");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const ask = (model: string, fields: object = {}, token: string | null = organization.token) =>
  send(service, COMPLETIONS, token, { model, messages: [{ role: "user", content: PROMPT }], ...fields });

async function scrape(): Promise<Map<string, ExportedMetric>> {
  const answer = await fetch(metricsUrl);
  expect(answer.status).toBe(200);
  return readExposition(await answer.text());
}

/** Makes a request of each kind that a metric counts, and returns what is exported afterwards. */
async function exercised(): Promise<Map<string, ExportedMetric>> {
  for (const model of ["known", "fine", "broken"]) await (await ask(model, { stream: model === "known" })).text();
  await (await ask("none-such")).text();
  await (await ask("fine", {}, null)).text();
  const poor = await makeOrganization(service, "0");
  await operator(service).call("PATCH", `/organizations/${poor.id}`, { aliases: { mine: "fine" } });
  await (await ask("mine", {}, poor.token)).text();
  const embedding = { model: "sandbox/embed", input: "hello" };
  await (await send(service, "/v1/embeddings", organization.token, embedding)).text();
  return vi.waitFor(async () => {
    const metrics = await scrape();
    expect(sumOf(metrics, "gen_ai_server_request_duration_seconds_count")).toBeGreaterThanOrEqual(7);
    return metrics;
  }, LONG);
}

describe("What is exported", () => {
  let metrics: Map<string, ExportedMetric>;
  beforeAll(async () => {
    metrics = await exercised();
  });

  test("requests are counted by their error code, also those that were refused before they ran", () => {
    const counted = (labels: Record<string, string>) =>
      sumOf(metrics, "http_server_request_duration_seconds_count", { http_route: COMPLETIONS, ...labels });
    expect(counted({ error_type: "model_not_found", http_response_status_code: "404" })).toBe(1);
    expect(counted({ error_type: "missing_token", http_response_status_code: "401" })).toBe(1);
    expect(counted({ error_type: "insufficient_credits", http_response_status_code: "402" })).toBe(1);
    expect(counted({ error_type: "upstream_error", http_response_status_code: "502" })).toBe(1);
    expect(counted({ http_response_status_code: "200" })).toBe(2);
    const ofAlias = { gen_ai_request_model: "fine", error_type: "insufficient_credits" };
    expect(sumOf(metrics, "gen_ai_server_request_duration_seconds_count", ofAlias)).toBe(1);
    const ofModel = { gen_ai_request_model: "broken", error_type: "upstream_error", gen_ai_provider_name: "up" };
    expect(sumOf(metrics, "gen_ai_server_request_duration_seconds_count", ofModel)).toBe(1);
    const calls = { gen_ai_provider_name: "up", tollgate_call_outcome: "failed" };
    expect(sumOf(metrics, "tollgate_upstream_call_duration_seconds_count", calls)).toBe(1);
  });

  test("tokens, credits, costs and margins are those of the answers", () => {
    const known = { gen_ai_request_model: "known" };
    const tokens = (labels: object) => sumOf(metrics, "tollgate_tokens_total", { ...known, ...labels });
    expect(tokens({ tollgate_token_class: "input" })).toBe(400);
    expect(tokens({ tollgate_token_class: "cached_input" })).toBe(600);
    expect(tokens({ tollgate_token_class: "output" })).toBe(3);
    const usage = (type: string) =>
      sumOf(metrics, "gen_ai_client_token_usage_sum", { ...known, gen_ai_token_type: type });
    expect([usage("input"), usage("output")]).toEqual([1000, 3]);
    const charged = 0.4 + 0.06 + 0.006;
    const credits = { ...known, tollgate_cost_known: "true" };
    expect(sumOf(metrics, "tollgate_credits_charged_total", credits)).toBeCloseTo(charged, 9);
    expect(sumOf(metrics, "tollgate_credits_cost_total", known)).toBeCloseTo(0.5, 9);
    expect(sumOf(metrics, "tollgate_credits_cost_total", { gen_ai_request_model: "fine" })).toBe(0);
    expect(sumOf(metrics, "gen_ai_server_time_to_first_token_seconds_count", known)).toBe(1);
  });

  test("the configuration of the service is shown by its hash, and so are a mistake in it and a change that waits", async () => {
    const file = join(service.dataDir, "tollgate.yaml");
    const text = readFileSync(file, "utf8");
    const stateOf = (all: Map<string, ExportedMetric>) =>
      ["read", "restart_needed"].map((name) => sumOf(all, `tollgate_configuration_${name}`));
    const hashOf = (all: Map<string, ExportedMetric>) => sumOf(all, "tollgate_configuration_hash");
    const checked = async () => (await service.tollgate<{ hash: number }>("config", "check")).hash;
    expect([hashOf(metrics), ...stateOf(metrics)]).toEqual([await checked(), 1, 0]);
    writeFileSync(file, text.replace('"metrics"', '"metrix"'));
    await expect.poll(async () => stateOf(await scrape())).toEqual([0, 0]);
    writeFileSync(file, JSON.stringify({ ...JSON.parse(text), ledger: { holdSeconds: 60 } }));
    await expect.poll(async () => stateOf(await scrape())).toEqual([1, 1]);
    const changed = hashOf(await scrape());
    expect(changed).not.toBe(hashOf(metrics));
    expect(changed).toBe(await checked());
    writeFileSync(file, text);
    await expect.poll(async () => stateOf(await scrape())).toEqual([1, 0]);
  });

  test("the state of the service is shown", () => {
    expect(sumOf(metrics, "tollgate_store_up", { db_system_name: "sqlite" })).toBe(1);
    expect(sumOf(metrics, "tollgate_circuits", { gen_ai_provider_name: "up", tollgate_circuit_state: "closed" })).toBe(
      3,
    );
    expect(sumOf(metrics, "tollgate_commit_batch_size_sum", { tollgate_commit_queue: "holds" })).toBeGreaterThanOrEqual(
      4,
    );
    expect(sumOf(metrics, "db_client_connection_max")).toBe(2);
    expect(sumOf(metrics, "process_memory_usage_bytes")).toBeGreaterThan(10_000_000);
    expect(sumOf(metrics, "tollgate_credits_shortfall_total")).toBe(0);
  });

  test("an open hold is shown while its request runs", async () => {
    upstream.behave("fine", answering({ words: ["one ", "two"], pauseMs: 400 }));
    const answer = await ask("fine", { stream: true });
    const running = await scrape();
    expect(sumOf(running, "tollgate_holds_open")).toBe(1);
    expect(sumOf(running, "http_server_active_requests")).toBe(2);
    await answer.text();
    await vi.waitFor(async () => expect(sumOf(await scrape(), "tollgate_holds_open")).toBe(0), LONG);
  });

  test("a flood of strange models, paths and methods adds no series of its own", async () => {
    const seriesOf = (all: Map<string, ExportedMetric>) =>
      [...all.values()].reduce((sum, { samples }) => sum + samples.length, 0);
    const before = seriesOf(await scrape());
    const strange = Array.from({ length: 150 }, (_, index) => `strange-${index}`);
    for (const name of strange) {
      await Promise.all([
        ask(name).then((answer) => answer.text()),
        send(service, `/v1/${name}`, organization.token).then((answer) => answer.text()),
        send(service, COMPLETIONS, organization.token, undefined, { method: `M${name.toUpperCase()}` }).catch(
          () => null,
        ),
      ]);
    }
    const text = await (await fetch(metricsUrl)).text();
    expect(text).not.toMatch(/strange/i);
    for (const id of [organization.id, organization.tokenId, organization.token]) expect(text).not.toContain(id);
    // Those of a path that no route matches, of a model that is not in the catalog and of refused requests per minute.
    expect(seriesOf(readExposition(text)) - before).toBeLessThan(100);
  });
});

describe("The endpoint", () => {
  test("on its own port there is nothing but /metrics", async () => {
    const { origin } = new URL(metricsUrl);
    expect((await fetch(`${origin}/v1/models`)).status).toBe(404);
    expect((await fetch(metricsUrl, { method: "POST" })).status).toBe(404);
    expect((await fetch(metricsUrl)).headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    expect((await fetch(`${service.url}/metrics`)).status).toBe(404);
  });
});

/** Returns the exported metrics by their names, without those that describe the process to Prometheus. */
function familiesOf(metrics: Map<string, ExportedMetric>): Map<string, ExportedMetric> {
  const named = [...metrics.values()].map((metric) => [metric.family, metric] as const);
  return new Map(named.filter(([name]) => name !== "target_info"));
}

/** Every query of the dashboard, and of the alerts. */
function queries(): { place: string; query: string }[] {
  const dashboard = JSON.parse(readFileSync(join(ROOT, "deploy/grafana/tollgate.json"), "utf8"));
  const panels = dashboard.panels as { title: string; targets?: { expr: string }[] }[];
  const variables = dashboard.templating.list as { name: string; query: string | { query: string } }[];
  const { groups } = parse(readFileSync(join(RULES, "alerts.yaml"), "utf8"));
  const rules = groups.flatMap((group: { rules: object[] }) => group.rules) as Record<string, string>[];
  return [
    ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ place: title, query: expr }))),
    ...variables.flatMap(({ name, query }) => (typeof query === "string" ? [] : [{ place: name, query: query.query }])),
    ...rules.map(({ alert, record, expr = "" }) => ({ place: alert ?? record ?? "", query: expr })),
  ];
}

/** Labels that Prometheus adds to every series. */
const OWN_LABELS = ["job", "instance"];
const WORDS = new Set(["by", "on", "and", "or", "unless", "without", "le"]);

/** Returns what a query uses that is not exported. */
function unknownIn(query: string, metrics: Map<string, ExportedMetric>): string[] {
  const used = [...query.matchAll(/\b([a-z]\w*_\w+|up)\b(?!\s*\()(?:\{([^}]*)\})?/g)].filter(
    ([, name = ""]) => !isGrouping(query, name) && !WORDS.has(name),
  );
  const known = new Set(["le", ...OWN_LABELS]);
  const unknown = used.flatMap(([, name = "", inner = ""]) => {
    const metric = metrics.get(name);
    if (metric === undefined) return name === "up" ? [] : [name];
    for (const label of metric.labels) known.add(label);
    const labels = [...inner.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = ""]) => label);
    return labels
      .filter((label) => !metric.labels.has(label) && !OWN_LABELS.includes(label))
      .map((l) => `${name}.${l}`);
  });
  const grouped = groupingsOf(query).filter((label) => !known.has(label));
  return [...unknown, ...grouped, ...(used.length === 0 ? ["nothing is queried"] : [])];
}

function groupingsOf(query: string): string[] {
  const lists = [...query.matchAll(/\b(?:by|on|without) \(([^)]*)\)|label_values\(\w+, (\w+)\)/g)];
  return lists.flatMap(([, list, label]) => (list ?? label ?? "").split(",")).flatMap((part) => part.trim() || []);
}

/** True for a name that stands in the list of a grouping or inside a matcher. */
function isGrouping(query: string, name: string): boolean {
  const bare = query.replaceAll(/\{[^}]*\}/g, "");
  return groupingsOf(query).includes(name) || !new RegExp(`\\b${name}\\b`).test(bare);
}

describe("The dashboard and the alerts", () => {
  test("use only metrics and labels that the service exports", async () => {
    const metrics = await exercised();
    const unknown = queries().flatMap(({ place, query }) => unknownIn(query, metrics).map((one) => `${place}: ${one}`));
    expect(unknown).toEqual([]);
    expect(queries().length).toBeGreaterThan(40);
    expect(unknownIn('sum by (error_kind) (rate(tollgate_nothing_total{a="b"}[5m]))', metrics)).toEqual([
      "tollgate_nothing_total",
      "error_kind",
    ]);
    expect(unknownIn('tollgate_store_up{model="a"}', metrics)).toEqual(["tollgate_store_up.model"]);
  });

  test("ask for both open states of a circuit, as the service names them", async () => {
    await exercised();
    const text = await (await fetch(metricsUrl)).text();
    const states = new Set([...text.matchAll(/tollgate_circuit_state="(\w+)"/g)].map(([, state]) => state));
    expect(states).toEqual(new Set(["closed", "partly_open", "open"]));
    const asked = queries().filter(({ query }) => query.includes("tollgate_circuits"));
    expect(asked.map(({ place }) => place)).toEqual([
      "Open circuits",
      "Circuits that are not closed",
      "TollgateCircuitOpen",
    ]);
    for (const { query } of asked) expect(query).toContain('tollgate_circuit_state=~"open|partly_open"');
  });

  test("show every metric that the service exports", async () => {
    const all = queries()
      .map(({ query }) => query)
      .join("\n");
    expect([...familiesOf(await exercised()).keys()].filter((name) => !all.includes(name))).toEqual([]);
  });

  test("docs/observability.md has the table of metrics and of alerts", async () => {
    const page = readDocuments().find(({ path }) => path === "docs/observability.md");
    if (page === undefined) throw new Error("There is no docs/observability.md");
    const plain = (text: string) => text.replaceAll("`", "");
    const inPrometheus = (name: string) => name.replaceAll(".", "_");
    const documented = tableOf(page, "metric").map(([name = "", exported = "", kind, labels = ""]) => {
      expect(plain(exported)).toMatch(new RegExp(`^${inPrometheus(plain(name))}(_seconds|_bytes|_ratio)?(_total)?$`));
      return [plain(exported), kind, ...inPrometheus(plain(labels)).split(" ").sort()].join(" ").trim();
    });
    const exported = [...familiesOf(await exercised())].map(([name, { type, labels }]) =>
      [name, type, ...[...labels].filter((label) => label !== "le").sort()].join(" "),
    );
    expect(documented.sort()).toEqual(exported.sort());
    const alerts = tableOf(page, "alert").map(([name = ""]) => name.replaceAll("`", ""));
    expect(alerts).toEqual(
      queries()
        .map(({ place }) => place)
        .filter((place) => /^Tollgate[A-Z]/.test(place)),
    );
  });
});

describe.skipIf(!inject("hasPrometheus"))("With Prometheus", () => {
  test("promtool accepts the rules, their tests and the example configuration", () => {
    const run = (...words: string[]) => execFileSync("promtool", words, { cwd: RULES, encoding: "utf8" });
    expect(run("check", "config", "prometheus.yaml")).toContain("SUCCESS");
    expect(run("test", "rules", "alert-tests.yaml")).toContain("SUCCESS");
  });

  test("every query of the dashboard is valid", async () => {
    const file = join(await makeDirectory(), "queries.yaml");
    const shown = queries().filter(({ query }) => !query.startsWith("label_values"));
    const rules = shown.map(({ query }, index) => ({
      record: `query_${index}`,
      expr: query.replaceAll("$__rate_interval", "5m"),
    }));
    writeFileSync(file, JSON.stringify({ groups: [{ name: "queries", rules }] }));
    expect(execFileSync("promtool", ["check", "rules", file], { encoding: "utf8" })).toContain("SUCCESS");
  });

  test("Prometheus scrapes the service and answers a query", async () => {
    const folder = await makeDirectory();
    mkdirSync(join(folder, "data"));
    const config = readFileSync(join(RULES, "prometheus.yaml"), "utf8")
      .replace("127.0.0.1:9464", new URL(metricsUrl).host)
      .replace("scrape_interval: 15s", "scrape_interval: 1s")
      .replace("alerts.yaml", join(RULES, "alerts.yaml"));
    writeFileSync(join(folder, "prometheus.yaml"), config);
    const port = await freePort();
    const words = [`--config.file=${folder}/prometheus.yaml`, `--storage.tsdb.path=${folder}/data`];
    const server = spawn("prometheus", [...words, `--web.listen-address=127.0.0.1:${port}`], { stdio: "ignore" });
    try {
      const query = encodeURIComponent('tollgate_store_up{job="tollgate"}');
      await vi.waitFor(
        async () => {
          const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=${query}`);
          const { data } = (await answer.json()) as { data: { result: { value: [number, string] }[] } };
          expect(data.result.map(({ value: [, value] }) => value)).toEqual(["1"]);
        },
        { timeout: 60_000, interval: 100 },
      );
    } finally {
      server.kill("SIGKILL");
    }
  });
});
