import type { Command } from "commander";
import { isoTime } from "../api/time.ts";
import { OperatorError } from "../errors.ts";
import type { RetentionPlan } from "../ledger/retention.ts";
import { table } from "../operations/command.ts";
import type { Log } from "../telemetry/logger.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { readConfig } from "./config.ts";
import { withWorkspace } from "./workspace.ts";

type Plans = readonly RetentionPlan[];
type RetentionFlags = CommonFlags & { dryRun?: boolean };

export function addRetention(program: Command, terminal: Terminal): void {
  const usage = "Remove what is older than the configuration allows, as the service does by itself";
  const retention = addCommand(program, "retention", usage)
    .option("--dry-run", "only print what would be removed")
    .action((flags: RetentionFlags) => {
      if (flags.dryRun !== true)
        throw new OperatorError("Add --dry-run to see what would be removed, or run to remove it.");
      return apply(terminal, flags, false);
    });
  // Commander takes the flags after `run` for those of `retention`, so `run --dry-run` removes nothing either.
  addCommand(retention, "run", "Remove it now; the service may be running").action((_: object, command: Command) => {
    const flags = command.optsWithGlobals<RetentionFlags>();
    return apply(terminal, flags, flags.dryRun !== true);
  });
}

async function apply(terminal: Terminal, flags: CommonFlags, removes: boolean): Promise<void> {
  const config = await readConfig(flags, { secrets: "unread" });
  const [{ Retention }, { UsageDays }] = await Promise.all([
    import("../ledger/retention.ts"),
    import("../reports/usage-days.ts"),
  ]);
  await withWorkspace(terminal, flags, async ({ store }) => {
    const { clock } = terminal;
    const log = logOf(terminal);
    const days = new UsageDays({ rows: store.usage, books: store.books, clock, log });
    const retention = new Retention({
      ...{ store, live: { config }, clock, log },
      now: () => performance.now(),
      isUsageSummedUp: (beforeMs) => days.isSummedUp(beforeMs),
      // A settlement that a service could not book yet has an open hold, which keeps its organization from being closed.
      spooled: async () => 0,
    });
    const planned = await retention.plan();
    if (!removes) return report(terminal, flags, planned);
    await days.sumUp();
    await retention.run();
    report(terminal, flags, planned, await retention.plan());
  });
}

function report(terminal: Terminal, flags: CommonFlags, planned: Plans, after?: Plans): void {
  const json = planned.map(({ kind, beforeMs, rows }) => {
    const left = after?.find((other) => other.kind === kind)?.rows;
    return {
      ...{ kind, before: isoTime(beforeMs), rows },
      ...(left !== undefined && { removed: Math.max(0, rows - left), left }),
    };
  });
  const text = table(
    ["KIND", "BEFORE", "ROWS", ...(after === undefined ? [] : ["REMOVED", "LEFT"])],
    json.map(({ kind, before, rows, removed, left }) => [kind, before, `${rows}`, `${removed ?? ""}`, `${left ?? ""}`]),
  );
  print(terminal, flags, { json, text });
  if (json.some(({ left = 0 }) => left > 0)) terminal.exitWith(1);
}

function logOf({ error, exitWith }: Terminal): Log {
  const problem = (fields: object, message: string) => {
    const { err, organizationId } = fields as { err?: Error; organizationId?: string };
    const details = [organizationId, err?.message].filter((detail) => detail !== undefined).join(": ");
    error(`tollgate: ${message}${details === "" ? "" : ` (${details})`}`);
    exitWith(1);
  };
  return { debug: () => undefined, info: () => undefined, warn: problem, error: problem };
}
