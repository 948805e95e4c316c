import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readDescription } from "../description.ts";
import { runOverspend } from "../main.ts";

const GATEWAY = fileURLToPath(new URL("small-gateway.ts", import.meta.url));
const KEY = { headers: {}, method: "POST", path: "/keys/{key}", body: { limit: "{totalText}" } };
const DESCRIPTION = {
  ...{ name: "small", inputMicros: 1, outputMicros: 1000, settleSeconds: 0 },
  createKey: [{ method: "POST", path: "/keys", body: { name: "{name}", limit: "{amountText}" }, read: { key: "key" } }],
  topUp: [{ ...KEY }],
  balance: [{ method: "GET", path: "/keys/{key}", read: { charged: "spent", held: "held" } }],
};

let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "overspend-test-"));
  await writeFile(join(directory, "small.json"), JSON.stringify(DESCRIPTION));
});

afterAll(() => rm(directory, { recursive: true, force: true }));

function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

/** Runs the benchmark; resolves with its exit code and what it printed. */
async function run(words: string[]): Promise<{ code: number; printed: string; complained: string }> {
  let printed = "";
  let complained = "";
  const output = {
    log: (text: string) => {
      printed += text;
    },
    error: (text: string) => {
      complained += text;
    },
  };
  const code = await runOverspend(words, output);
  return { code, printed, complained };
}

/** Measures the small gateway with faults; resolves with the exit code and the report. */
async function measure(faults: string[], trials?: string, more: string[] = []) {
  const [port, upstreamPort] = [await freePort(), await freePort()];
  const books = join(directory, `books-${port}.json`);
  const program = [process.execPath, GATEWAY, "--port", port, "--books", books, "--faults", `'${faults.join()}'`];
  const { code, printed } = await run([
    ...["--target", `http://127.0.0.1:${port}`, "--adapter", join(directory, "small.json")],
    ...["--upstream", `127.0.0.1:${upstreamPort}`, "--requests", "12", "--rounds", "2", "--json"],
    ...["--command", `exec ${program.join(" ")} --upstream http://127.0.0.1:${upstreamPort}/v1`],
    ...(trials === undefined ? [] : ["--trials", trials]),
    ...more,
  ]);
  return { code, report: JSON.parse(printed) };
}

describe("The benchmark", () => {
  test("finds nothing wrong with a gateway that keeps the rules.", async () => {
    const { code, report } = await measure([]);
    const wrong = { overspent: 0, double: 0, lost: 0, findings: [], ok: true };
    expect(report).toMatchObject({ ...wrong, adapter: "small", answers_from: "upstream" });
    expect(code).toBe(0);
    expect(report.trials.map(({ outcome }: { outcome: string }) => outcome)).toEqual(Array(7).fill("run"));
    expect(report.trials.flatMap(({ not_run }: { not_run: unknown[] }) => not_run)).toEqual([]);
    expect(report.charged).toBeGreaterThan(0);
    expect(report.delivered).toBeLessThanOrEqual(report.granted);
  });

  test.each([
    ["a soft cap", ["soft-cap"], "concurrency", ["overspent"]],
    ["trust in an upstream's report", ["believe-usage"], "lying-upstreams", ["double", "lost"]],
    ["broken answers that are charged in full", ["charge-cut"], "cut-answers", ["double"]],
    ["broken answers that are free", ["free-cut"], "clients-leave,cut-answers", ["lost"]],
    ["repetitions that are charged again", ["charge-retries"], "retries", ["double"]],
    ["charges that a kill loses", ["late-books"], "kill", ["lost", "overspent"]],
  ])("finds %s.", async (_name, faults, trials, expected) => {
    const { code, report } = await measure(faults, trials);
    const found = ["double", "lost", "overspent"].filter((key) => report[key] > 0);
    expect({ code, ok: report.ok, found }).toEqual({ code: 1, ok: false, found: expected });
    expect(report.findings.length).toBeGreaterThan(0);
  });

  test("finds all three in a gateway with several faults.", async () => {
    const { code, report } = await measure(
      ["soft-cap", "charge-cut", "believe-usage"],
      "concurrency,cut-answers,lying-upstreams",
    );
    const { overspent, double, lost } = report;
    expect([code, overspent > 0, double > 0, lost > 0]).toEqual([1, true, true, true]);
  });
});

const GATEWAYS = new URL("../gateways/", import.meta.url);

test.each(readdirSync(GATEWAYS))("The description %s is complete.", (file) => {
  const text = readFileSync(new URL(file, GATEWAYS), "utf8");
  expect(readDescription(text, file)).toMatchObject({ name: file.replace(".json", "") });
  expect(JSON.parse(text).notes).toContain("not run here");
});

test("Nodes take the requests in turn, and what a node does not pass on is listed as not run.", async () => {
  const { code, report } = await measure([], "resets", ["--node", `http://127.0.0.1:${await freePort()}`]);
  const [trial] = report.trials;
  expect([code, trial.requests, trial.not_run.length]).toEqual([0, 10, 5]);
  expect(trial.not_run[0].reason).toBe("the gateway did not call its upstream (no response)");
});

describe("A wrong use ends with 2 and says", () => {
  const target = ["--target", "http://127.0.0.1:9"];
  test.each([
    ["that the target is missing", [], "--target is missing"],
    ["that the target is no address", ["--target", "gateway"], "--target: found gateway"],
    ["that the target is another machine", ["--target", "http://192.0.2.1"], "--allow-host 192.0.2.1"],
    ["that a node is another machine", [...target, "--node", "http://192.0.2.1"], "--allow-host 192.0.2.1"],
    ["that the token is missing", target, "needs --admin-token"],
    ["which trials there are", [...target, "--admin-token", "t", "--trials", "nap"], "found nap; allowed: concurrency"],
    ["what a number may be", [...target, "--admin-token", "t", "--requests", "1.5"], "--requests: found 1.5; allowed"],
    ["that an option is unknown", [...target, "--nap"], "Unknown option '--nap'"],
    ["that the description is missing", [...target, "--adapter", "nap.json"], "nap.json cannot be read"],
    [
      "that an upstream needs a port",
      [...target, "--admin-token", "t", "--upstream", "here"],
      "--upstream: found here",
    ],
  ])("%s.", async (_name, words, message) => {
    const { code, printed, complained } = await run(words);
    expect({ code, printed }).toEqual({ code: 2, printed: "" });
    expect(complained).toContain(message);
  });

  test.each([
    ["which key is unknown", { ...DESCRIPTION, balances: [] }, "balances is not a known key. Known keys: name"],
    ["what a list of requests is", { ...DESCRIPTION, balance: [] }, "balance must be a list of requests"],
    ["which price is no whole number", { ...DESCRIPTION, outputMicros: 0.5 }, "outputMicros must be a whole number"],
    [
      "which method is unknown",
      { ...DESCRIPTION, balance: [{ method: "LOOK", path: "/" }] },
      "balance[0]: method must be",
    ],
  ])("%s in a description.", async (_name, description, message) => {
    const file = join(directory, "wrong.json");
    await writeFile(file, JSON.stringify(description));
    const { code, complained } = await run([...target, "--adapter", file]);
    expect(code).toBe(2);
    expect(complained).toContain(message);
  });
});
