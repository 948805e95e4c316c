import { readFileSync, writeFileSync } from "node:fs";
import { OTHER_KINDS, startBench, tableRows, WAITS_MS_MAX } from "../test/upstreams/run.ts";
import { OWN_KIND } from "../test/upstreams/wire-cases.ts";

/** Plays every misbehaviour against a started service, and writes the results into the table of the page. */
const PAGE = new URL("../docs/upstream-faults.md", import.meta.url);
const HEADING = "| an upstream's misbehaviour | with streaming | without | on the other wires |";

const bench = await startBench();
try {
  const met = await bench.run([OWN_KIND, ...OTHER_KINDS]);
  const late = met.filter(({ outcome, tookMs }) => outcome.includes("timeout") && tookMs > WAITS_MS_MAX);
  if (late.length > 0) throw new Error(`Reported too late: ${JSON.stringify(late)}`);
  const rows = tableRows(met).map((cells) => `| ${cells.join(" | ")} |`);
  const table = [HEADING, "|---|---|---|---|", ...rows].join("\n");
  const text = readFileSync(PAGE, "utf8");
  const start = text.indexOf(HEADING);
  if (start < 0) throw new Error(`docs/upstream-faults.md has no table that begins with ${HEADING}`);
  const end = text.indexOf("\n\n", start);
  writeFileSync(PAGE, text.slice(0, start) + table + (end < 0 ? "\n" : text.slice(end)));
} finally {
  await bench.end();
}
