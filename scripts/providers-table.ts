/**
 * Writes the tables of docs/providers.md from the code: `node scripts/providers-table.ts`. A test compares the page with
 * the result.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type FieldSupport, RARE, type Treatment, treatmentOf } from "../src/providers/fields.ts";
import { PROVIDER_KINDS } from "../src/providers/index.ts";
import { LOCAL_SERVERS } from "../src/providers/local-servers.ts";
import { DEFAULT_REQUEST_FORMAT } from "../src/providers/openai/request.ts";
import { KNOWN_PROVIDERS, type KnownProvider } from "../src/providers/registry.ts";

const PAGE = fileURLToPath(new URL("../docs/providers.md", import.meta.url));

/** Fields that change the answer: a request with one is refused where the provider does not support it. */
const DEMANDS = /^(response_format|image_url|logprobs|top_logprobs|stop)\b/;

function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(headings), line(headings.map(() => "---")), ...rows.map(line)].join("\n");
}

const code = (words: readonly string[]) => words.map((word) => `\`${word}\``).join(", ");

/** The configuration keys and the package of each kind. */
function kinds(): string {
  const rows = PROVIDER_KINDS.map(({ kind, keys, wire }) => [
    code([kind]),
    code(keys),
    wire === undefined ? "" : code(wire.packages),
  ]);
  return table(["kind", "its keys", "package"], rows);
}

/** The differences of a request format, a sentence each. */
function formatRemarks({ requestFormat = {} }: Pick<KnownProvider, "requestFormat">): string[] {
  const { maxTokensField, reasoningField, reasoningOff, acceptsMaxEffort } = requestFormat;
  const back = reasoningField === null ? "is not sent back" : `is sent back as \`${reasoningField}\``;
  return [
    ...(maxTokensField === undefined ? [] : [`\`max_tokens\` is sent as \`${maxTokensField}\`.`]),
    ...(reasoningField === undefined ? [] : [`\`reasoning_content\` ${back}.`]),
    ...(reasoningOff ? [`\`reasoning_effort: none\` is sent as ${code(Object.keys(reasoningOff))}.`] : []),
    ...(acceptsMaxEffort ? ["`reasoning_effort: max` is passed."] : []),
  ];
}

/** The request that an upstream with a second wire receives as its client sent it. */
function secondWireRemarks({ secondWire }: Pick<KnownProvider, "secondWire">): string[] {
  if (secondWire === undefined) return [];
  const path = secondWire.wire === "generateContent" ? "/v1beta/models/…:generateContent" : `/v1/${secondWire.wire}`;
  return [`\`POST ${path}\` is forwarded.`];
}

/** Sentences about providers, in addition to their limits, by the id of the provider. */
const REMARKS: Readonly<Record<string, readonly string[]>> = {
  openai: ["Chat completions of models that only the Responses API serves are translated to it."],
  anthropic: [
    "All system messages go first.",
    "On models before Claude 4.6, `reasoning_effort` takes its share of `max_tokens`, at least 1,024 tokens; where that is too much it is left out.",
  ],
  google: [
    "All system messages go first.",
    "With `reasoning_effort`, a summary of the thoughts comes as `reasoning_content`.",
  ],
  xai: ["Requests are sent with `store: false`; encrypted reasoning must be sent back with the next turn."],
  deepseek: ["While it thinks, `reasoning_content` has to come back with the results of tool calls."],
  cohere: ["Text in messages with tool calls is dropped; it is named as `messages.content` in `x-tollgate-ignored`."],
  perplexity: [
    "It charges for each request in addition to the tokens; the highest of its fees applies. `sonar-deep-research` is charged for what it searches and cites, and is offered where `models` states a price.",
    "`sonar-reasoning-pro` thinks inside `content`, between `<think>` and `</think>`.",
  ],
  openrouter: ["`reasoning_details` go both ways."],
  azure: ["A price is known only where the deployment has the model's own name: state it otherwise."],
  bedrock: [
    "All system messages go first.",
    "Claude thinks as on Anthropic's own API; Nova's highest effort is `medium`, because above it takes no bound of its answer.",
    "A conversation that holds tool calls needs its tools: where a request offers none, they are offered by their names alone.",
  ],
  "google-vertex": [
    "All system messages go first.",
    "Known prices are those of the global location: state others where a region is more expensive.",
  ],
};

/** The row of each provider and local server. */
function providers(): string {
  const unknown = Object.keys(REMARKS).find((id) => KNOWN_PROVIDERS.every((provider) => provider.id !== id));
  if (unknown !== undefined) throw new Error(`There are remarks on an unknown provider: ${unknown}`);
  const known = KNOWN_PROVIDERS.map((provider) => {
    const { id, name, documentation, kind, keyVariable, lacks, refuses, requestFormat } = provider;
    return [
      `[${name}](${documentation})`,
      code([kind]),
      keyVariable === null ? "configuration" : code([keyVariable]),
      code([...lacks.filter((one) => one !== "prompt_caching"), ...refuses.filter((field) => DEMANDS.test(field))]),
      code([
        ...refuses.filter((field) => !DEMANDS.test(field)),
        ...(requestFormat?.acceptsNames === false ? ["messages.name"] : []),
      ]),
      [...secondWireRemarks(provider), ...formatRemarks(provider), ...(REMARKS[id] ?? [])].join(" "),
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
      formatRemarks(server).join(" "),
    ];
  });
  return table(["provider", "kind", "found by", "cannot", "leaves out", "remarks"], [...known, ...local]);
}

/** The treatment of each rare field by each provider: what it is passed on, translated, refused or ignored. */
function fields(): string {
  const supports: readonly [string, FieldSupport][] = [
    ...KNOWN_PROVIDERS.map(({ name, wire, requestFormat }): [string, FieldSupport] => {
      return [name, wire?.fields ?? requestFormat?.fields ?? DEFAULT_REQUEST_FORMAT.fields];
    }),
    ...LOCAL_SERVERS.map(({ name, requestFormat }): [string, FieldSupport] => {
      return [name, requestFormat?.fields ?? DEFAULT_REQUEST_FORMAT.fields];
    }),
    ["any other address", DEFAULT_REQUEST_FORMAT.fields],
  ];
  const names = RARE;
  const rows = supports.map(([name, support]) => {
    const cell = (treatment: Treatment) => code(names.filter((field) => treatmentOf(support, field) === treatment));
    return [name, cell("passed"), cell("translated"), cell("refused"), cell("ignored")];
  });
  return table(["provider", "passed", "translated", "refused", "ignored"], rows);
}

/** The keywords of JSON schemas that each provider refuses, where it refuses any. */
function schemas(): string {
  const rows = KNOWN_PROVIDERS.flatMap(({ name, wire, requestFormat }) => {
    const limits = wire === undefined ? requestFormat?.schemas : wire.schemas;
    if (!limits) return [];
    const { refuses, enforcesAnswers, models } = limits;
    const keywords = Object.entries(refuses).map(([keyword, values]) => {
      return values.length === 0 ? code([keyword]) : `${code([keyword])} except ${code(values.map(String))}`;
    });
    const whose = models === undefined ? name : `${name}, models of Anthropic`;
    return [[whose, enforcesAnswers ? "all answers, strict tools" : "strict answers and tools", keywords.join(", ")]];
  });
  return table(["provider", "enforced schemas", "keywords moved into the description"], rows);
}

/** Returns the page with its tables written from the code. */
export function withTables(page: string): string {
  return Object.entries({ kinds, providers, fields, schemas }).reduce((text, [name, make]) => {
    const marks = new RegExp(`(<!-- ${name}:[^>]*-->\\n)[^]*?(\\n<!-- end of ${name} -->)`);
    if (!marks.test(text)) throw new Error(`docs/providers.md has no place for the table of ${name}`);
    return text.replace(marks, (_all, begin: string, end: string) => `${begin}\n${make()}\n${end}`);
  }, page);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(PAGE, withTables(readFileSync(PAGE, "utf8")));
