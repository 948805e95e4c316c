import type { MeasuredRound } from "./round.ts";

/** All rounds of one contender at one kind of answer and one number of connections. */
export interface Cell {
  streamed: boolean;
  connections: number;
  contender: string;
  rounds: MeasuredRound[];
}

/** Returns the median. A round that other work disturbed hardly changes it. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

const rateOf = (cell: Cell) => median(cell.rounds.map((round) => round.requestsPerSecond));

function processorTimeOf(cell: Cell): string {
  const times = cell.rounds.flatMap((round) => round.processorMicrosecondsPerAnswer ?? []);
  return times.length === 0 ? "" : median(times).toFixed(0);
}

/** Returns the ratio of a figure of two contenders: the median over the rounds, whose turns are next to each other. */
function ratioOf(own: Cell, other: Cell, figure: (round: MeasuredRound) => number | undefined): string {
  const ratios = own.rounds.flatMap((round, index) => {
    const [mine, theirs] = [round, other.rounds[index]].map((one) => one && figure(one));
    return mine === undefined || theirs === undefined ? [] : mine / theirs;
  });
  return ratios.length === 0 ? "" : median(ratios).toFixed(2);
}

/** The table: a row for each cell, with how Tollgate's rate and processor time compare to each other contender's. */
export function toMarkdown(cells: readonly Cell[], subject: string): string {
  const rows = cells.map((cell) => {
    const peers = cells.filter((one) => one.streamed === cell.streamed && one.connections === cell.connections);
    const own = peers.find((one) => one.contender === subject);
    const ratio = (figure: (round: MeasuredRound) => number | undefined) =>
      own === undefined || own === cell ? "" : ratioOf(own, cell, figure);
    const rates = cell.rounds.map((round) => round.requestsPerSecond);
    return [
      cell.streamed ? "streamed" : "unstreamed",
      cell.connections,
      cell.contender,
      Math.round(rateOf(cell)),
      `${Math.round(Math.min(...rates))} to ${Math.round(Math.max(...rates))}`,
      median(cell.rounds.map((round) => round.p50Ms)).toFixed(1),
      median(cell.rounds.map((round) => round.p99Ms)).toFixed(1),
      ratio((round) => round.requestsPerSecond),
      processorTimeOf(cell),
      ratio((round) => round.processorMicrosecondsPerAnswer),
    ];
  });
  const head = [
    "answers",
    "connections",
    "gateway",
    "requests/s",
    "of the rounds",
    "p50 ms",
    "p99 ms",
    `rate, ${subject} / it`,
    "CPU µs per request",
    `CPU, ${subject} / it`,
  ];
  const rule = ["---", "--:", "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:"];
  return [head, rule, ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
}
