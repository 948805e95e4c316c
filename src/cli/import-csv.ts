import type { OrganizationDeclaration } from "../api/admin/declaration.ts";
import { csvCells } from "../api/csv.ts";
import { isoTime, parseTime } from "../api/time.ts";
import { ApiError, OperatorError } from "../errors.ts";
import { argument, command, text, toggle, type ValuesOf } from "../operations/command.ts";
import { listsOf } from "../stores/database.ts";
import { AT_ONCE, EXIT_CHANGES, fileText } from "./apply.ts";
import { listPrinter } from "./command.ts";
import type { Workspace } from "./workspace.ts";

/** The field of a grant that a column sets; null: a term of the organization. */
type Columns = Readonly<Record<string, string | null>>;

const KEYS = { id: null, external_id: null };
const TERMS = { name: null, status: null, contacts: null, price_list: null, models: null, note: null };
const GRANT = { reference: "reference", expires_at: "expires_at" };
const ORGANIZATIONS: Columns = { ...KEYS, ...TERMS, grant: "amount", ...GRANT };
const GRANTS: Columns = { ...KEYS, amount: "amount", ...GRANT, effective_at: "effective_at", priority: "priority" };

/** Fields with numbers: the form of their text, and its words. */
const NUMBERS: Readonly<Record<string, readonly [RegExp, string]>> = {
  amount: [/^(?=.*[1-9])\d{1,12}(\.\d{1,6})?$/, "a number above 0 with at most 12 digits and 6 decimals, such as 12.5"],
  priority: [/^\d{1,4}$/, "an integer from 0 to 1000"],
};

const FLAGS = {
  file: argument("<file>", text),
  dryRun: toggle("--dry-run", "only print what each line would do; the exit code is 2 if one would change something"),
  strict: toggle("--strict", "stop at the first line that is refused"),
};

/** The commands that import organizations, or grants, with a result for each line. */
export const csvImports = [
  command({
    usage: "org import <file>",
    summary: `Create and change organizations from a CSV file with the columns ${Object.keys(ORGANIZATIONS).join(", ")}`,
    flags: FLAGS,
    run: (workspace: Workspace, input) => importLines(workspace, input, ORGANIZATIONS),
  }),
  command({
    usage: "credits import <file>",
    summary: `Grant credits from a CSV file with the columns ${Object.keys(GRANTS).join(", ")}`,
    flags: FLAGS,
    run: (workspace: Workspace, input) => importLines(workspace, input, GRANTS),
  }),
];

interface LineResult {
  line: number;
  organization: string | null;
  result: "created" | "changed" | "unchanged" | "refused";
  reason: string | null;
}

/** Imports a file with one row per line, and prints a result for each. Running it again completes an interrupted run. */
async function importLines(
  { terminal, flags, ...core }: Workspace,
  { file, dryRun, strict }: ValuesOf<typeof FLAGS>,
  columns: Columns,
) {
  const { planOrganization } = await import("../operations/declared-organizations.ts");
  const rows = fileText(file)
    .split(/\r?\n/)
    .flatMap((row, index) => (row.trim() === "" ? [] : [{ row, line: index + 1 }]));
  const names = columnsIn(file, rows.shift()?.row ?? "", columns);
  const acceptedLines = new Map<string, Promise<number | undefined>>();
  const resultOf = async (row: string, line: number): Promise<LineResult> => {
    const refused = (organization: string | null, reason: string) =>
      ({ line, organization, result: "refused", reason }) as const;
    const cells = csvCells(row);
    if (cells === undefined) return refused(null, "its quotes do not match within the line, or it is too long");
    if (cells.length !== names.length) {
      return refused(null, `it has ${cells.length} fields, but must have ${names.length}`);
    }
    const { declared, wrong } = declarationOf(names, cells, columns);
    const key = declared.id ?? declared.external_id ?? null;
    if (wrong !== undefined) return refused(key, wrong);
    const isGrant = columns === GRANTS;
    const entry = isGrant ? [key, declared.grants?.[0]?.reference] : [key];
    // A line without a key is refused for that, however many there are.
    const subject = JSON.stringify(entry.every((part) => part != null) ? entry : line);
    const earlier = acceptedLines.get(subject);
    const accepted = Promise.withResolvers<number | undefined>();
    acceptedLines.set(subject, accepted.promise);
    const first = await earlier;
    if (first !== undefined) {
      accepted.resolve(first);
      return refused(key, `line ${first} has the same ${isGrant ? "reference" : "organization"}`);
    }
    try {
      const { isNew, steps } = await planOrganization(core, declared);
      for (const { run } of dryRun ? [] : steps) await run();
      accepted.resolve(line);
      const changed = isNew ? "created" : "changed";
      return { line, organization: key, result: steps.length === 0 ? "unchanged" : changed, reason: null };
    } catch (error) {
      accepted.resolve(undefined);
      if (!(error instanceof ApiError)) throw error;
      const field = error.param?.replace("grants[0].", "").split("[")[0];
      const at = names.findIndex((name) => (columns[name] ?? name) === field);
      const message = (error.command ?? error).message.replace("grants[0].", "");
      return refused(key, at < 0 ? message : `column ${at + 1}, ${names[at]}: ${message}`);
    }
  };
  const counts = { created: 0, changed: 0, unchanged: 0, refused: 0 };
  const text = ({ line, organization, result, reason }: LineResult) =>
    `${line}  ${result}  ${organization ?? "-"}${reason === null ? "" : `  ${reason}`}`;
  const output = listPrinter<LineResult>(terminal, flags, { name: "lines", json: (one) => one, text });
  output.begin({ dryRun });
  for (const some of listsOf(rows, strict ? 1 : AT_ONCE)) {
    for (const one of await Promise.all(some.map(({ row, line }) => resultOf(row, line)))) {
      counts[one.result] += 1;
      output.entry(one);
    }
    await terminal.drained();
    if (strict && counts.refused > 0) break;
  }
  if (counts.refused > 0) terminal.exitWith(1);
  else if (dryRun && counts.created + counts.changed > 0) terminal.exitWith(EXIT_CHANGES);
  const words = Object.entries(counts).map(([result, count]) => `${result}: ${count}`);
  output.end(counts, `Lines ${words.join(", ")}`);
  return undefined;
}

/** Returns the columns. Throws OperatorError for a header that the command does not know. */
function columnsIn(file: string, header: string, columns: Columns): string[] {
  const names = (csvCells(header) ?? [header]).map((name) => name.trim());
  const wrong = names.find((name, index) => !Object.hasOwn(columns, name) || names.indexOf(name) !== index);
  const allowed = `one of: ${Object.keys(columns).join(", ")}, each once`;
  if (wrong !== undefined) throw new OperatorError(`${file}:1: column ${JSON.stringify(wrong)} must be ${allowed}.`);
  if (names.some((name) => name in KEYS)) return names;
  throw new OperatorError(`${file}:1: there must be a column external_id or id.`);
}

/** Returns the declaration of a row, or what is wrong with a number in it; an empty cell leaves a term as it is. */
function declarationOf(names: readonly string[], cells: readonly string[], columns: Columns) {
  const terms: Record<string, unknown> = {};
  const grant: Record<string, unknown> = {};
  let wrong: string | undefined;
  for (const [index, name] of names.entries()) {
    const cell = cells[index]?.trim() ?? "";
    if (cell === "") continue;
    const field = columns[name] ?? null;
    const [form, words] = NUMBERS[field ?? ""] ?? [];
    if (form?.test(cell) === false) wrong ??= `column ${index + 1}, ${name}: ${JSON.stringify(cell)} is not ${words}`;
    const timeMs = field?.endsWith("_at") ? parseTime(cell) : undefined;
    if (field !== null) grant[field] = form === undefined ? (isoTime(timeMs ?? null) ?? cell) : Number(cell);
    else terms[name] = name === "models" || name === "contacts" ? cell.split(/[\s,;]+/) : cell;
  }
  const declared = { ...terms, ...(Object.keys(grant).length > 0 && { grants: [grant] }) } as OrganizationDeclaration;
  return { declared, wrong };
}
