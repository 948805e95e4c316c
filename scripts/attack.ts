/**
 * `npm run attack -- URL [--token T] [--admin-token T] [--allow-host NAME]`: plays every attack of `test/hostile/attacks/`
 * against a running service and prints a table of what held. Ends with 1 when something did not hold.
 * `npm run attack -- --write`: does so with a service of its own and writes the table into `docs/attacks.md`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { parseArgs } from "node:util";
import type { Target } from "../test/hostile/attacks/attack.ts";
import { ATTACKS } from "../test/hostile/attacks/index.ts";
import { playAll, type Result, tableRows, watchHealth } from "../test/hostile/attacks/run.ts";
import { startAttackedService } from "../test/hostile/attacks/service.ts";

const PAGE = new URL("../docs/attacks.md", import.meta.url);
const HEADING = "| what must hold | area | the attacker has | result |";
const USAGE =
  "Usage: npm run attack -- URL [--token T] [--admin-token T] [--allow-host NAME], or npm run attack -- --write";

function readArguments(): Target | "write" {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      token: { type: "string" },
      "admin-token": { type: "string" },
      "allow-host": { type: "string" },
      write: { type: "boolean", default: false },
    },
  });
  if (values.write) return "write";
  const [address, ...more] = positionals;
  if (address === undefined || more.length > 0) throw new Error(USAGE);
  if (!URL.canParse(address)) throw new Error(`${address} is not an address. ${USAGE}`);
  const { protocol, hostname, origin } = new URL(address);
  if (protocol !== "http:") throw new Error(`Attacks are played over plain HTTP: found ${address}.`);
  if (!isLoopback(hostname) && values["allow-host"] !== hostname) {
    throw new Error(`${hostname} is another machine. Attack only what is yours, with --allow-host ${hostname}.`);
  }
  return { url: origin, token: values.token, adminToken: values["admin-token"] };
}

function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || (isIP(hostname) === 4 && hostname.startsWith("127."));
}

function print({ attack, outcome, reason }: Result): void {
  console.log(`${outcome.padEnd(12)} | ${attack.title}${reason === undefined ? "" : `\n  ${reason}`}`);
}

/** Plays all attacks, prints the results, and returns them. */
async function attack(target: Target): Promise<Result[]> {
  console.log("result       | what must hold\n-------------|---------------");
  const watch = await watchHealth(target);
  const results = await playAll(ATTACKS, target, print);
  const { longestMs, failures } = await watch.stop();
  const count = (outcome: Result["outcome"]) => results.filter((result) => result.outcome === outcome).length;
  console.log(
    `\n${count("held")} held, ${count("did not hold")} did not hold, ${count("not played")} not played.` +
      ` The longest wait for /healthz was ${longestMs} ms; ${failures} requests for it failed.`,
  );
  return results;
}

function writeTable(results: readonly Result[]): void {
  const rows = tableRows(results).map((cells) => `| ${cells.join(" | ")} |`);
  const text = readFileSync(PAGE, "utf8");
  const start = text.indexOf(HEADING);
  if (start < 0) throw new Error(`docs/attacks.md has no table with the heading ${HEADING}`);
  const table = [HEADING, "|---|---|---|---|", ...rows].join("\n");
  const end = text.indexOf("\n\n", start);
  writeFileSync(PAGE, text.slice(0, start) + table + (end < 0 ? "\n" : text.slice(end)));
}

async function attackOwnService(): Promise<Result[]> {
  const { target, end } = await startAttackedService();
  try {
    const results = await attack(target);
    writeTable(results);
    return results;
  } finally {
    await end();
  }
}

try {
  const order = readArguments();
  const results = order === "write" ? await attackOwnService() : await attack(order);
  process.exitCode = results.some(({ outcome }) => outcome === "did not hold") ? 1 : 0;
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
