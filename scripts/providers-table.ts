/**
 * Writes the tables of docs/providers.md from the code: `node scripts/providers-table.ts`. A test compares the page with
 * what this would write.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { KNOWN_PROVIDERS } from "../src/catalog/known-providers.ts";
import { LOCAL_SERVERS } from "../src/catalog/local-servers.ts";
import { PROVIDER_KINDS } from "../src/providers/index.ts";
import type { KnownProvider } from "../src/providers/registry/known-provider.ts";

const PAGE = fileURLToPath(new URL("../docs/providers.md", import.meta.url));

/** What is not taken and changes the answer, so that a request with it is refused. */
const DEMANDS = /^(response_format|image_url|logprobs|top_logprobs|stop)\b/;

function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(headings), line(headings.map(() => "---")), ...rows.map(line)].join("\n");
}

const code = (words: readonly string[]) => words.map((word) => `\`${word}\``).join(", ");

/** What each kind is configured with, and what speaks it. */
function kinds(): string {
  const rows = PROVIDER_KINDS.map(({ kind, keys, wire }) => [
    code([kind]),
    code(keys),
    wire === undefined ? "" : code([wire.package]),
  ]);
  return table(["kind", "its keys", "package"], rows);
}

/** What goes to a compatible API in its own way, a sentence each. */
function dialectRemarks({ dialect = {} }: Pick<KnownProvider, "dialect">): string[] {
  const { maxTokens, reasoning, withoutReasoning } = dialect;
  const back = reasoning === null ? "does not go back" : `goes back as \`${reasoning}\``;
  return [
    ...(maxTokens === undefined ? [] : [`\`max_tokens\` goes as \`${maxTokens}\`.`]),
    ...(reasoning === undefined ? [] : [`\`reasoning_content\` ${back}.`]),
    ...(withoutReasoning ? [`\`reasoning_effort: none\` goes as ${code(Object.keys(withoutReasoning))}.`] : []),
  ];
}

/** What is known of each provider. */
function providers(): string {
  const known = KNOWN_PROVIDERS.map((provider) => {
    const { name, documentation, kind, keyVariable, lacks, refuses, dialect, remarks } = provider;
    return [
      `[${name}](${documentation})`,
      code([kind]),
      keyVariable === null ? "configuration" : code([keyVariable]),
      code([...lacks.filter((one) => one !== "prompt_caching"), ...refuses.filter((field) => DEMANDS.test(field))]),
      code([
        ...refuses.filter((field) => !DEMANDS.test(field)),
        ...(dialect?.takesNames === false ? ["messages.name"] : []),
      ]),
      [...dialectRemarks(provider), ...remarks].join(" "),
    ];
  });
  const local = LOCAL_SERVERS.map((server) => {
    const { name, kind, baseUrl, refuses = [] } = server;
    return [
      name,
      code([kind]),
      `port ${new URL(baseUrl).port} of this machine`,
      code(refuses.filter((field) => DEMANDS.test(field))),
      code(refuses.filter((field) => !DEMANDS.test(field))),
      dialectRemarks(server).join(" "),
    ];
  });
  return table(["provider", "kind", "found by", "cannot", "leaves out", "remarks"], [...known, ...local]);
}

/** The page with its tables as the code has them now. */
export function withTables(page: string): string {
  return Object.entries({ kinds, providers }).reduce((text, [name, make]) => {
    const marks = new RegExp(`(<!-- ${name}:[^>]*-->\\n)[^]*?(\\n<!-- end of ${name} -->)`);
    if (!marks.test(text)) throw new Error(`docs/providers.md has no place for the table of ${name}`);
    return text.replace(marks, (_all, begin: string, end: string) => `${begin}\n${make()}\n${end}`);
  }, page);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(PAGE, withTables(readFileSync(PAGE, "utf8")));
