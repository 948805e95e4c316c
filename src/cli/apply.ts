import { closeSync, fsyncSync, openSync, unlinkSync, writeFileSync } from "node:fs";
import type { OrganizationDeclaration } from "../api/admin/declaration.ts";
import type { TokenWithSecret } from "../api/admin/token.ts";
import type { Path } from "../config/file.ts";
import { readTextFile, reasonOf } from "../config/text-file.ts";
import { ApiError, OperatorError } from "../errors.ts";
import { command, optional, required, text, toggle } from "../operations/command.ts";
import type { OrganizationPlan } from "../operations/declared-organizations.ts";
import { csvRow } from "../reports/csv.ts";
import { listsOf } from "../stores/database.ts";
import { failureText, print } from "./command.ts";
import type { Workspace } from "./workspace.ts";

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const MISTAKES_MAX = 20;
/** Number of organizations that are read or changed concurrently. */
export const AT_ONCE = 16;
/** Exit code of --dry-run if something would change. */
export const EXIT_CHANGES = 2;

export const applyOrganizations = command({
  usage: "apply",
  summary: "Create and change organizations as a file declares them",
  flags: {
    file: required("-f, --file <file>", "file that declares organizations, in YAML or JSON"),
    dryRun: toggle("--dry-run", "only print what would change; the exit code is 2 if something would"),
    yes: toggle("--yes", "apply without asking"),
    secrets: optional("--secrets <file>", "new file for the secrets of new tokens, readable by its owner only", text),
  },
  input(values, { json = false }) {
    if (json && !values.dryRun && !values.yes)
      throw new OperatorError("--json cannot ask for confirmation. Add --yes or --dry-run.");
    return values;
  },
  async run(workspace: Workspace, { file, dryRun, yes, secrets }) {
    const { terminal, flags } = workspace;
    const { confirm } = terminal;
    if (!dryRun && !yes && confirm === undefined) {
      throw new OperatorError(
        "There is no terminal to ask for confirmation. Add --yes, or --dry-run to see what would change.",
      );
    }
    const plans = await readPlans(workspace, file);
    const changing = plans.filter(({ steps }) => steps.length > 0);
    const report = (applied: boolean) => ({
      json: { applied, ...countsOf(plans), organizations: changing.map(planJson) },
      text: `${applied ? "" : changing.map(planText).join("")}${countsText(plans, applied)}`,
    });
    if (dryRun || changing.length === 0) {
      if (changing.length > 0) terminal.exitWith(EXIT_CHANGES);
      return report(false);
    }
    const newTokens = changing.flatMap(({ steps }) => steps).filter(isNewToken).length;
    if (newTokens > 0 && secrets === null) {
      throw new OperatorError(`New tokens: ${newTokens}. Add --secrets FILE, a new file for their secrets.`);
    }
    if (!yes) {
      print(terminal, flags, report(false));
      if ((await confirm?.("Apply these changes? [y/N] ")) !== true) throw new OperatorError("Nothing was changed.");
    }
    using output = newTokens === 0 || secrets === null ? undefined : secretsFile(secrets);
    for (const some of listsOf(changing, AT_ONCE)) {
      const ended = await Promise.allSettled(some.map((plan) => runPlan(plan, output?.write)));
      const failures = ended.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
      // Each may name a token whose secret is lost.
      for (const failure of failures.slice(1)) terminal.error(failureText(failure, flags));
      if (failures.length > 0) throw failures[0];
    }
    return report(true);
  },
});

async function runPlan({ externalId, steps }: OrganizationPlan, write?: (cells: string[]) => void): Promise<void> {
  for (const step of steps) {
    const answer = await step.run();
    if (!isNewToken(step)) continue;
    const { organization_id, id, name, secret } = answer as TokenWithSecret;
    try {
      write?.([organization_id, externalId ?? "", id, name, secret]);
    } catch (error) {
      throw new OperatorError(
        `The secret of the token ${id} (${JSON.stringify(name)}) could not be written: ${reasonOf(error)}. Rotate this token.`,
        { cause: error },
      );
    }
  }
}

function isNewToken({ kind, action }: OrganizationPlan["steps"][number]): boolean {
  return kind === "token" && action === "create";
}

/** Plans the organizations of a file. Rejects with OperatorError for mistakes, which it prints with their places. */
async function readPlans(workspace: Workspace, file: string): Promise<OrganizationPlan[]> {
  const [{ yamlDocuments }, { checkDocument }, { planOrganization }] = await Promise.all([
    import("../config/file.ts"),
    import("../api/admin/declaration.ts"),
    import("../operations/declared-organizations.ts"),
  ]);
  const plans: OrganizationPlan[] = [];
  const mistakes: string[] = [];
  const places = new Map<string, string>();
  for (const { values, place } of yamlDocuments(file, fileText(file))) {
    const addMistake = (path: Path, message: string) => mistakes.push(`${place(path)}: ${message}`);
    const issue = checkDocument(values);
    if (issue !== undefined) {
      addMistake(pathOf(issue.param), issue.message);
      continue;
    }
    const entries = [...(values as { organizations: OrganizationDeclaration[] }).organizations.entries()];
    for (const some of listsOf(entries, AT_ONCE)) {
      if (mistakes.length >= MISTAKES_MAX) break;
      const results = await Promise.allSettled(some.map(([, declared]) => planOrganization(workspace, declared)));
      for (const [at, result] of results.entries()) {
        const [index, declared] = some[at] as (typeof some)[number];
        const path = ["organizations", index];
        if (result.status === "rejected") {
          const error: unknown = result.reason;
          if (!(error instanceof ApiError)) throw error;
          addMistake([...path, ...pathOf(error.param)], (error.command ?? error).message);
          continue;
        }
        const names = new Set([declared.external_id, declared.id, result.value.id]);
        const keys = [...names].filter((key) => typeof key === "string");
        const again = keys.find((key) => places.has(key));
        if (again !== undefined)
          addMistake(path, `The organization ${again} is already declared at ${places.get(again)}.`);
        for (const key of keys) places.set(key, place(path));
        plans.push(result.value);
      }
    }
  }
  if (mistakes.length === 0) return plans;
  for (const mistake of mistakes.slice(0, MISTAKES_MAX)) workspace.terminal.error(`tollgate: ${mistake}`);
  const isMore = mistakes.length > MISTAKES_MAX;
  throw new OperatorError(
    `Mistakes in ${file}: ${isMore ? `more than ${MISTAKES_MAX}` : mistakes.length}. Nothing was changed.`,
  );
}

/** Reads a file. Throws OperatorError. */
export function fileText(file: string): string {
  try {
    return readTextFile(file, file, FILE_BYTES_MAX);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${file} cannot be read: ${reasonOf(error)}`, { cause: error });
  }
}

/** Converts the path of a field in an error: `tokens[0].cap`. */
function pathOf(param: string | null): Path {
  const steps = (param ?? "").split(/[.[\]]+/).filter((step) => step !== "");
  return steps.map((step) => (/^\d+$/.test(step) ? Number(step) : step));
}

/** Creates a file for the secrets of tokens. Each is on disk before the next token of its organization is created. */
function secretsFile(path: string) {
  let file = -1;
  const write = (cells: string[]) => {
    writeFileSync(file, `${csvRow(cells)}\n`);
    fsyncSync(file);
  };
  try {
    // Exclusive, so that no other file is overwritten or written through a link.
    file = openSync(path, "wx", 0o600);
    write(["organization_id", "external_id", "token_id", "name", "secret"]);
  } catch (error) {
    if (file !== -1) closeSync(file);
    if (file !== -1) unlinkSync(path);
    throw new OperatorError(`${path} cannot be created: ${reasonOf(error)}`, { cause: error });
  }
  return { write, [Symbol.dispose]: () => closeSync(file) };
}

function countsOf(plans: OrganizationPlan[]) {
  const created = plans.filter(({ isNew }) => isNew).length;
  const unchanged = plans.filter(({ steps }) => steps.length === 0).length;
  return { created, changed: plans.length - created - unchanged, unchanged };
}

function countsText(plans: OrganizationPlan[], isApplied: boolean): string {
  const { created, changed, unchanged } = countsOf(plans);
  if (created + changed === 0) return `Nothing to do. Organizations unchanged: ${unchanged}.`;
  const words = isApplied ? ["created", "changed"] : ["to create", "to change"];
  return `Organizations ${words[0]}: ${created}, ${words[1]}: ${changed}, unchanged: ${unchanged}.`;
}

function planJson({ id, externalId, name, isNew, steps }: OrganizationPlan) {
  const action = isNew ? "create" : "change";
  return { id, externalId, name, action, steps: steps.map(({ run: _, ...step }) => step) };
}

const MARKS = { create: "+", change: "~", remove: "-" };

function planText({ id, externalId, name, isNew, steps }: OrganizationPlan): string {
  const lines = steps.flatMap(({ kind, action, changes, ...step }) => {
    const indent = kind === "organization" ? "  " : "    ";
    const fields = changes.map(({ field, from, to }) => {
      const old = action === "change" ? `${valueText(from)} → ` : "";
      return `${indent}${field}: ${old}${valueText(to)}`;
    });
    return kind === "organization" ? fields : [`  ${MARKS[action]} ${kind} ${JSON.stringify(step.name)}`, ...fields];
  });
  const head = `${isNew ? "+" : "~"} ${JSON.stringify(name)} ${[id, externalId].filter((one) => one !== null).join(" ")}`;
  return [head, ...lines].map((line) => `${line}\n`).join("");
}

function valueText(value: unknown): string {
  return value === null ? "none" : JSON.stringify(value);
}
