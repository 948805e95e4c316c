import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { generate } from "../bench/generator.ts";
import { readPlan } from "../bench/plan.ts";
import { type Cell, toMarkdown, toVariantTable } from "../bench/report.ts";
import type { Round } from "../bench/round.ts";

const STALL_MS = 250;

let server: Server;

async function roundOn(answer: RequestListener, load: Partial<Round>): Promise<Round> {
  server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return { method: "GET", url, headers: [{}], connections: 1, seconds: 0.3, leastBytes: 1, ...load };
}

afterEach(() => {
  server?.close();
});

test("An open loop sends requests while others wait, and counts their times from when they were due.", async () => {
  let arrived = 0;
  const waiting: (() => void)[] = [];
  const round = await roundOn(
    (_request, response) => {
      arrived += 1;
      waiting.push(() => response.end("done"));
      // A closed loop of one connection would never get here. Nothing is sent meanwhile: the generator shares the process.
      if (arrived === 120) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STALL_MS);
      if (arrived >= 120) for (const end of waiting.splice(0)) end();
    },
    { rate: 100 },
  );
  const { answers, failures, p99Ms } = await generate(round);
  expect({ answers, failures, arrived }).toEqual({ answers: 130, failures: 0, arrived: 130 });
  expect(p99Ms).toBeGreaterThan(STALL_MS * 0.9);
});

test.each([
  ["has another status", 503, "data: [DONE]\n\n"],
  ["is too short", 200, "[DONE]"],
  ["lacks its last event", 200, 'data: {"delta":"all else"}\n\n'],
])("An answer that %s is a failure.", async (_, status, text) => {
  const stream = { last: "[DONE]", firstToken: "delta" };
  const round = await roundOn((_request, response) => response.writeHead(status).end(text), {
    seconds: 0.05,
    leastBytes: 10,
    stream,
  });
  const { answers, failures } = await generate(round);
  expect(answers).toBe(0);
  expect(failures).toBeGreaterThan(0);
});

test("Options that nothing can be measured with are refused by name.", () => {
  expect(() => readPlan(["--workers", "1,2"])).toThrow("--workers above 1 needs --store postgres");
  expect(() => readPlan(["--contenders", "tollgate,apache"])).toThrow("--contenders takes node, fastify");
  expect(() => readPlan(["--connections", "8,many"])).toThrow("--connections takes whole numbers from 1");
  expect(() => readPlan(["--seconds", "5,6"])).toThrow("--seconds takes one number");
});

test("SQLite takes part with one process, PostgreSQL with each number of workers, and all with each number of budgets.", () => {
  const { variants, others } = readPlan([
    ..."--store sqlite,postgres --workers 1,2 --budgets 0,5 --contenders".split(" "),
    "tollgate,nginx",
  ]);
  expect(others).toEqual(["nginx"]);
  expect(variants).toEqual([
    { store: "sqlite", workers: 1, budgets: 0 },
    { store: "sqlite", workers: 1, budgets: 5 },
    { store: "postgres", workers: 1, budgets: 0 },
    { store: "postgres", workers: 1, budgets: 5 },
    { store: "postgres", workers: 2, budgets: 0 },
    { store: "postgres", workers: 2, budgets: 5 },
  ]);
});

test("A ratio is the median of those of the rounds, and compares the same requests.", () => {
  const load = { connections: 8 };
  const cell = (entrant: string, rates: number[], request = ""): Cell => {
    const figures = { answers: 1, p50Ms: 1, p99Ms: 2, failures: 0, statuses: {} };
    const rounds = rates.map((requestsPerSecond) => ({ ...figures, requestsPerSecond }));
    return { streamed: false, load, entrant: entrant + request, request, rounds };
  };
  const cells = [
    cell("nginx", [100, 10, 20]),
    cell("Tollgate", [50, 10, 5]),
    cell("Tollgate", [100, 20, 5], ", models"),
    cell("Tollgate before", [10, 10, 10], ", models"),
  ];
  const variants = ["Tollgate, models"];
  const comparison = { service: "Tollgate", subject: "Tollgate", variants, floor: "nginx" };
  const [, , nginx, own, models, before] = toMarkdown(cells, comparison).split("\n");
  expect(nginx).toContain("| nginx | 20 (10 to 100) | 0.50 |");
  expect(own).toContain("| Tollgate | 10 (5 to 50) |  |");
  expect(models).toContain("| Tollgate, models | 20 (5 to 100) |  |");
  expect(before).toContain("| Tollgate before, models | 10 (10 to 10) | 2.00 |");
  expect(toVariantTable(cells, comparison)).toContain("| unstreamed | 8 connections | Tollgate, models | 2.00 |");
});
