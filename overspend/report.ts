import type { NotRun } from "./bench.ts";
import { addUp, type Finding, type Judgement } from "./judge.ts";

/** A trial as it is reported. */
export type TrialReport = { name: string; title: string } & (
  | ({ outcome: "run"; requests: number; complete: number; partial: number; not_run: NotRun[] } & Judgement)
  | { outcome: "not run" | "failed"; reason: string }
);

/** The result of a run. */
export type Report = Judgement & {
  ok: boolean;
  unit: string;
  target: string;
  adapter: string;
  version: string | null;
  answers_from: "upstream" | "sandbox";
  started_at: string;
  seconds: number;
  trials: TrialReport[];
};

export type RunFacts = Pick<Report, "target" | "adapter" | "version" | "answers_from" | "started_at" | "seconds">;

const FINDINGS_MAX = 20;

/** Adds up the trials. A run is good if every trial that was begun ended, some were, and nothing was wrong. */
export function reportOf(trials: TrialReport[], facts: RunFacts): Report {
  const played = trials.flatMap((trial) => (trial.outcome === "run" ? [trial] : []));
  const { findings, ...total } = addUp(played);
  const isRight = total.overspent === 0n && total.double === 0n && total.lost === 0n;
  const hasFailed = trials.some(({ outcome }) => outcome === "failed");
  const ok = isRight && !hasFailed && played.length > 0;
  return { ...total, findings: findings.slice(0, FINDINGS_MAX), ok, unit: "micro-units", ...facts, trials };
}

const BIGINT = /"@(-?\d+)@"/g;

/** Writes a report as one JSON document. Amounts are whole numbers with all their digits. */
export function toJsonText(report: Report): string {
  const text = JSON.stringify(report, (_key, value) => (typeof value === "bigint" ? `@${value}@` : value), 2);
  return text.replace(BIGINT, "$1");
}

const AMOUNTS = ["granted", "delivered", "charged", "overspent", "double", "lost", "unfinished"] as const;

/** Writes a report as a table, followed by what was not run and what was wrong. */
export function toTable(report: Report): string {
  const header = ["trial", "requests", "complete", "partial", ...AMOUNTS];
  const rows = report.trials.map((trial) => {
    if (trial.outcome !== "run") return [trial.name, trial.outcome];
    const counts = [trial.requests, trial.complete, trial.partial].map(String);
    return [trial.name, ...counts, ...AMOUNTS.map((key) => String(trial[key]))];
  });
  const total = ["total", "", "", "", ...AMOUNTS.map((key) => String(report[key]))];
  const reasons = report.trials.flatMap((trial) =>
    trial.outcome === "run"
      ? trial.not_run.map(({ name, reason }) => `Not run: ${trial.name}: ${name}: ${reason}.`)
      : [`${trial.outcome === "failed" ? "Failed" : "Not run"}: ${trial.name}: ${trial.reason}.`],
  );
  const { target, adapter, version, answers_from: from, started_at: at, seconds, ok } = report;
  const source = from === "upstream" ? "the benchmark's own upstream" : "the sandbox models";
  return [
    `${adapter}${version === null ? "" : ` ${version}`} at ${target}, ${at}, ${seconds} s, answers from ${source}`,
    "Amounts are millionths of the gateway's unit.",
    "",
    ...align([header, ...rows, total]),
    "",
    ...reasons,
    ...report.findings.map(toLine),
    ok ? "Nothing was overspent, charged twice or lost." : "The gateway failed.",
  ].join("\n");
}

function align(rows: string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

function toLine({ what, intent, least, most, charged }: Finding): string {
  if (what === "overspent") return `Overspent: more was delivered than the ${most} that were granted.`;
  const bounds = least === most ? `${least}` : `${least} to ${most}`;
  return `${what === "double" ? "Double" : "Lost"}: ${intent}: charged ${charged}, right is ${bounds}.`;
}
