import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeToken } from "../../src/admin/token.ts";
import { Random } from "../crash/random.ts";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { makeOrganization, type RunningService, startService } from "../support/service.ts";
import { exchangeRaw } from "./raw-http.ts";

const TOKENS = countOf("tokens");
const A_CONNECTION = 50;
const AT_ONCE = 8;
const random = new Random(seedOfRun());
/** Places of a token after its prefix. */
const [FIRST, LAST] = [6, 54];

let service: RunningService;
let known: string;

beforeAll(async () => {
  service = await startService();
  known = (await makeOrganization(service, "10")).token;
});

afterAll(async () => {
  await service?.end();
});

/** Returns the number of rows of each table. */
function rows(): object {
  const database = new DatabaseSync(join(service.dataDir, "tollgate.db"), { readOnly: true, timeout: 60_000 });
  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
  const counted = tables.map(({ name }) => [
    name,
    database.prepare(`SELECT count(*) AS rows FROM ${name}`).get()?.rows,
  ]);
  database.close();
  return Object.fromEntries(counted);
}

const randomBytes = (count: number) => Uint8Array.from({ length: count }, () => random.between(0, 255));

/** Returns a token that is well formed and unknown, or a known one with a mistake. */
function invalidToken(number: number): string {
  if (number % 4 !== 0) return makeToken(randomBytes).token;
  const place = FIRST + ((number / 4) % (LAST + 1 - FIRST));
  return known.slice(0, place) + (known[place] === "x" ? "y" : "x") + known.slice(place + 1);
}

test(`${TOKENS} random tokens let nobody in and write no row`, { timeout: timeoutOf("tokens") }, async () => {
  const before = rows();
  const statuses = new Map<number, number>();
  let sent = 0;
  const sendAll = async () => {
    while (sent < TOKENS) {
      const from = sent;
      sent += A_CONNECTION;
      const requests = Array.from({ length: A_CONNECTION }, (_, index) => {
        return `GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${invalidToken(from + index)}\r\n\r\n`;
      });
      for (const { status } of await exchangeRaw(service.url, requests.join(""), A_CONNECTION))
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, sendAll));
  expect(Object.fromEntries(statuses)).toEqual({ 401: sent });
  expect(rows()).toEqual(before);
});
