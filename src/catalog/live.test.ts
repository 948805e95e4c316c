import { describe, expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import { buildCatalog } from "./build.ts";
import { providersOfKeys } from "./known-providers.ts";
import { LiveCatalog, type LiveCatalogOptions } from "./live.ts";
import type { FoundServer } from "./local-servers.ts";

const START = Date.parse("2026-11-21T12:00:00Z");

function server(id: string, ...models: string[]): FoundServer {
  const baseUrl = "http://127.0.0.1:1/v1";
  return { id, name: id, kind: "openai-compatible", baseUrl, models: models.map((name) => ({ name })) };
}

/** A catalog whose clock and whose local servers the test moves. */
function live(options: Partial<LiveCatalogOptions> = {}) {
  const warnings: string[] = [];
  const log: Log = { debug() {}, info() {}, warn: (_fields, message) => warnings.push(message), error() {} };
  const world = { nowMs: START, answering: [] as FoundServer[], fails: false, looks: 0, builds: 0 };
  const catalog = new LiveCatalog({
    build: (found, nowMs) => {
      world.builds += 1;
      const providers = providersOfKeys({ GEMINI_API_KEY: "key" });
      return buildCatalog({ models: [], providers, credits: { perDollar: "1", markup: "0" }, found }, nowMs);
    },
    look: async () => {
      world.looks += 1;
      if (world.fails) throw new Error("no network");
      return world.answering;
    },
    clock: () => world.nowMs,
    log,
    ...options,
  });
  const localModels = () => catalog.list().flatMap(({ id }) => (/^(ollama|vllm)\//.test(id) ? [id] : []));
  return { catalog, world, warnings, localModels };
}

describe("The live catalog", () => {
  test("has the known models before its first search.", () => {
    const { catalog, world } = live();
    expect(catalog.find("sandbox/echo")).toBeDefined();
    expect(catalog.find("gemini-2.5-flash")).toBeDefined();
    expect(world.looks).toBe(0);
  });

  test("lists local models, and removes a model that its server no longer has.", async () => {
    const { catalog, world, localModels } = live();
    world.answering = [server("ollama", "a", "b"), server("vllm", "c")];
    await catalog.refresh();
    expect(localModels()).toEqual(["ollama/a", "ollama/b", "vllm/c"]);
    expect(catalog.found.map(({ id }) => id)).toEqual(["ollama", "vllm"]);
    world.answering = [server("ollama", "b"), server("vllm", "c")];
    await catalog.refresh();
    expect(localModels()).toEqual(["ollama/b", "vllm/c"]);
    expect(catalog.find("ollama/a")).toBeUndefined();
  });

  test("of a reload lists the servers of the earlier one before its first search, if it searches at all.", async () => {
    const earlier = live();
    earlier.world.answering = [server("ollama", "a")];
    await earlier.catalog.refresh();
    const { found } = earlier.catalog;
    expect(live({ known: found }).localModels()).toEqual(["ollama/a"]);
    const build: LiveCatalogOptions["build"] = (seen, nowMs) =>
      buildCatalog({ models: [], providers: [], credits: { perDollar: "1", markup: "0" }, found: seen }, nowMs);
    const log: Log = { debug() {}, info() {}, warn() {}, error() {} };
    const without = new LiveCatalog({ build, known: found, clock: () => START, log });
    expect(without.find("ollama/a")).toBeUndefined();
  });

  test("keeps a silent server for a while and then removes it.", async () => {
    const { catalog, world, localModels } = live({ keepMs: 90_000 });
    world.answering = [server("ollama", "a")];
    await catalog.refresh();
    world.answering = [];
    world.nowMs += 89_999;
    await catalog.refresh();
    expect(localModels()).toEqual(["ollama/a"]);
    world.nowMs += 1;
    await catalog.refresh();
    expect(localModels()).toEqual([]);
  });

  test("stays unchanged if a search fails, and logs the failure.", async () => {
    const { catalog, world, warnings, localModels } = live();
    world.answering = [server("ollama", "a")];
    await catalog.refresh();
    world.fails = true;
    world.nowMs += 200_000;
    await catalog.refresh();
    expect(localModels()).toEqual(["ollama/a"]);
    expect(warnings).toEqual(["the catalog could not be renewed and stays as it was"]);
  });

  test("is rebuilt only after a change.", async () => {
    const { catalog, world } = live();
    world.answering = [server("ollama", "a")];
    for (let round = 0; round < 5; round += 1) await catalog.refresh();
    expect(world.builds).toBe(2);
  });

  test("applies dated prices and shutdowns.", async () => {
    const { catalog, world } = live();
    expect(catalog.find("gemini-3.6-flash")?.prices.input).toBe(750_000n);
    expect(catalog.find("gemini-2.5-flash")).toMatchObject({
      deprecatedSince: expect.any(Number),
      shutdownDate: "2026-12-01",
    });
    world.nowMs = Date.parse("2027-01-01T00:00:10Z");
    await catalog.refresh();
    expect(catalog.find("gemini-3.6-flash")?.prices.input).toBe(1_500_000n);
    expect(catalog.list().map(({ id }) => id)).not.toContain("gemini-2.5-flash");
  });

  test("applies a price at midnight, not at the next search.", () => {
    const { catalog, world } = live();
    world.nowMs = Date.parse("2026-12-31T23:59:59.999Z");
    expect(catalog.find("gemini-3.6-flash")?.prices.input).toBe(750_000n);
    world.nowMs += 1;
    expect(catalog.find("gemini-3.6-flash")?.prices.input).toBe(1_500_000n);
    expect(catalog.list().some(({ id }) => id === "gemini-2.5-flash")).toBe(false);
    expect(world.looks).toBe(0);
  });

  test("runs one search for concurrent calls.", async () => {
    const { catalog, world } = live();
    await Promise.all([catalog.refresh(), catalog.refresh(), catalog.refresh()]);
    expect(world.looks).toBe(1);
  });

  test("searches in the background until it is stopped.", async () => {
    const { catalog, world } = live({ everyMs: 5 });
    await catalog.start();
    await expect.poll(() => world.looks).toBeGreaterThan(2);
    await catalog.stop();
    const { looks } = world;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(world.looks).toBe(looks);
  });

  test("works without a search.", async () => {
    const { catalog, localModels } = live({ look: undefined } as Partial<LiveCatalogOptions>);
    await catalog.refresh();
    expect(localModels()).toEqual([]);
    expect(catalog.notes).toEqual([]);
  });

  test("refuses a wrong configuration at once.", () => {
    const build = () => {
      throw new OperatorError("models[0].price: found nothing");
    };
    expect(() => live({ build })).toThrow("models[0].price: found nothing");
  });
});
