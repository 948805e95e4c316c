import type { Load, MeasuredRound } from "./round.ts";

/** All rounds of one contender at one kind of answer and one load. */
export interface Cell {
  streamed: boolean;
  load: Load;
  entrant: string;
  /** End of the entrant's name, by which the same requests to another service are found. */
  request: string;
  rounds: MeasuredRound[];
}

/** Names of the entrants that the others are compared with. */
export interface Comparison {
  /** This Tollgate; undefined if it does not take part. Its figures are divided by those of other services. */
  service: string | undefined;
  /** Its first kind of requests. */
  subject: string | undefined;
  /** Other stores, workers, endpoints and numbers of organizations of Tollgate, which are divided by the subject. */
  variants: string[];
  /** The entrant whose times are subtracted in an open loop. */
  floor: string;
}

/** Resident memory of a contender in MiB. */
export interface Memory {
  name: string;
  started: number | undefined;
  highest: number | undefined;
  after: number | undefined;
}

/** Returns the median. A round that other work disturbed hardly changes it. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

type Figure = (round: MeasuredRound) => number | undefined;

const RATE: Figure = (round) => round.requestsPerSecond;
const P50: Figure = (round) => round.p50Ms;
const P99: Figure = (round) => round.p99Ms;
const FIRST_TOKEN: Figure = (round) => round.firstTokenMs;
const PROCESSOR: Figure = (round) => round.processorMicroseconds;
const ALLOCATED: Figure = (round) => round.allocatedKiB;

const figuresOf = (cell: Cell, figure: Figure) => cell.rounds.flatMap((round) => figure(round) ?? []);

/** Formats the median with the least and the most of the rounds; empty where the figure was not measured. */
function spread(cell: Cell, figure: Figure, digits: number): string {
  const all = figuresOf(cell, figure);
  if (all.length === 0) return "";
  return `${median(all).toFixed(digits)} (${Math.min(...all).toFixed(digits)} to ${Math.max(...all).toFixed(digits)})`;
}

/** Combines a figure of two cells: the median over the rounds, whose turns are next to each other. */
function paired(
  cells: [Cell | undefined, Cell | undefined],
  figure: Figure,
  combine: (a: number, b: number) => number,
  digits: number,
): string {
  const [first, second] = cells;
  if (first === undefined || second === undefined || first === second) return "";
  const all = first.rounds.flatMap((round, index) => {
    const other = second.rounds[index];
    const [a, b] = [figure(round), other && figure(other)];
    return a === undefined || b === undefined ? [] : combine(a, b);
  });
  return all.length === 0 ? "" : median(all).toFixed(digits);
}

const quotient = (a: number, b: number) => a / b;
const difference = (a: number, b: number) => a - b;

/** A cell with those that it is compared with: of the same kind of answer and the same load. */
interface Row {
  cell: Cell;
  subject: Cell | undefined;
  floor: Cell | undefined;
}
type Column = [heading: string, value: (row: Row) => string];

const figureOf = (heading: string, figure: Figure, digits: number): Column => [
  heading,
  ({ cell }) => spread(cell, figure, digits),
];
const ratio = (heading: string, figure: Figure): Column => [
  heading,
  ({ cell, subject }) => paired([subject, cell], figure, quotient, 2),
];
const above = (heading: string, figure: Figure): Column => [
  heading,
  ({ cell, floor }) => paired([cell, floor], figure, difference, 1),
];

const COMMON: Column[] = [
  ["answers", ({ cell }) => (cell.streamed ? "streamed" : "unstreamed")],
  ["load", ({ cell }) => formatLoad(cell.load)],
  ["gateway", ({ cell }) => cell.entrant],
];
const costs = (subject: string): Column[] => [
  figureOf("CPU µs a request", PROCESSOR, 0),
  ratio(`CPU, ${subject} / it`, PROCESSOR),
  figureOf("KiB allocated a request", ALLOCATED, 1),
];

const closedLoop = (subject: string): Column[] => [
  ...COMMON,
  figureOf("requests/s", RATE, 0),
  ratio(`rate, ${subject} / it`, RATE),
  figureOf("p50 ms", P50, 1),
  figureOf("p99 ms", P99, 1),
  ...costs(subject),
];

const openLoop = (subject: string, floor: string): Column[] => [
  ...COMMON,
  figureOf("p50 ms", P50, 1),
  above(`p50 above ${floor}`, P50),
  figureOf("p99 ms", P99, 1),
  above(`p99 above ${floor}`, P99),
  figureOf("first token p50 ms", FIRST_TOKEN, 1),
  above(`first token above ${floor}`, FIRST_TOKEN),
  ...costs(subject),
];

function formatLoad({ connections, rate }: Load): string {
  return rate === undefined ? `${connections} ${connections === 1 ? "connection" : "connections"}` : `${rate}/s`;
}

/** Returns the table of a run: a row for each cell, and how it compares with Tollgate or with the floor. */
export function toMarkdown(cells: readonly Cell[], { service, subject, floor, variants }: Comparison): string {
  const name = service ?? "Tollgate";
  const columns = cells.some(({ load }) => load.rate !== undefined) ? openLoop(name, floor) : closedLoop(name);
  const rows = cells.map((cell) => {
    const same = beside(cells, cell, `${service}${cell.request}`) ?? beside(cells, cell, subject);
    const own = variants.includes(cell.entrant) ? undefined : same;
    const row: Row = { cell, subject: own, floor: beside(cells, cell, floor) };
    return columns.map(([, value]) => value(row));
  });
  return markdown(
    columns.map(([heading]) => heading),
    rows,
    COMMON.length,
  );
}

/** Returns the table of the variants of Tollgate, each divided by the subject; empty if there is only one. */
export function toVariantTable(cells: readonly Cell[], { subject, variants }: Comparison): string {
  const figures: [string, Figure][] = [
    ["rate", RATE],
    ["p50", P50],
    ["p99", P99],
    ["CPU", PROCESSOR],
    ["allocated", ALLOCATED],
  ];
  const rows = cells
    .filter(({ entrant }) => variants.includes(entrant))
    .map((cell) => {
      const own = beside(cells, cell, subject);
      return [
        ...COMMON.map(([, value]) => value({ cell, subject: own, floor: undefined })),
        ...figures.map(([, figure]) => paired([cell, own], figure, quotient, 2)),
      ];
    });
  if (rows.length === 0) return "";
  const [answers, load] = COMMON.map(([heading]) => heading);
  const headings = [answers ?? "", load ?? "", `divided by ${subject}`, ...figures.map(([heading]) => heading)];
  return `\n\n${markdown(headings, rows, COMMON.length)}`;
}

/** Returns the table of the memory of each contender. */
export function toMemoryTable(memories: readonly Memory[], afterSeconds: number): string {
  const headings = ["MiB resident", "after its start", "highest under load", `${afterSeconds} s after the load`];
  const rows = memories.map(({ name, started, highest, after }) => {
    return [name, ...[started, highest, after].map((figure) => figure?.toFixed(0) ?? "")];
  });
  return markdown(headings, rows, 1);
}

function beside(cells: readonly Cell[], { streamed, load }: Cell, entrant: string | undefined): Cell | undefined {
  return cells.find((one) => one.streamed === streamed && one.load === load && one.entrant === entrant);
}

/** The first columns are text, the others numbers. */
function markdown(headings: string[], rows: string[][], textColumns: number): string {
  const rule = headings.map((_, index) => (index < textColumns ? "---" : "--:"));
  return [headings, rule, ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
}
