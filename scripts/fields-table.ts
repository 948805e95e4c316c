/**
 * Writes the tables of docs/fields.md: what the service does with each field of a request in the types that OpenAI, Anthropic
 * and Google publish. `node scripts/fields-table.ts`; a test compares the page with the result. With `--gemini FOLDER`, a
 * folder in which `@google/genai` is installed, the types of Google are read again first.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type PublishedObject, publishedObjects } from "./fields/published.ts";
import { type Observed, observe } from "./fields/treatment.ts";
import { type PublishedWire, WIRES, writeGeminiTypes } from "./fields/wires.ts";

export const FIELDS_PAGE = fileURLToPath(new URL("../docs/fields.md", import.meta.url));

/** The fields of one object by what becomes of them. */
export interface ObjectRow {
  object: string;
  fields: Record<Observed, string[]>;
}

/** Observes every published field of a wire. */
export function observeWire(wire: PublishedWire): ObjectRow[] {
  return publishedObjects({ ...wire, schema: wire.schema() }).map((object) => rowOf(wire, object));
}

function rowOf(wire: PublishedWire, { name, fields, body }: PublishedObject): ObjectRow {
  const row: ObjectRow = {
    object: name === "" ? "the request" : `\`${name}\``,
    fields: { passed: [], translated: [], named: [], refused: [], lost: [], unclear: [] },
  };
  for (const field of fields) row.fields[observe(wire, field, body)].push(`\`${field.name}\``);
  return row;
}

function table(rows: readonly ObjectRow[]): string {
  const lines = rows.map(({ object, fields: { passed, translated, named, refused } }) => {
    return `| ${[object, ...[passed, translated, named, refused].map((names) => names.join(", "))].join(" | ")} |`;
  });
  return ["| object | passed | translated | named | refused |", "|---|---|---|---|---|", ...lines].join("\n");
}

/** Returns the page with its tables written from the code. */
export function withFieldTables(page: string): string {
  return WIRES.reduce((text, wire) => {
    const marks = new RegExp(`(## ${wire.name}\\n)[^]*?(\\n<!-- end of ${wire.name} -->)`);
    if (!marks.test(text)) throw new Error(`docs/fields.md has no place for the table of ${wire.name}`);
    const section = `\nThe types of ${wire.source}.\n\n${table(observeWire(wire))}\n`;
    return text.replace(marks, (_all, begin: string, end: string) => begin + section + end);
  }, page);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { gemini: folder } = parseArgs({ options: { gemini: { type: "string" } } }).values;
  if (folder !== undefined) writeGeminiTypes(folder);
  writeFileSync(FIELDS_PAGE, withFieldTables(readFileSync(FIELDS_PAGE, "utf8")));
}
