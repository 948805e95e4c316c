import { scaleBand, scaleLinear } from "d3-scale";

export interface Series {
  name: string;
  /** CSS colour, such as `var(--series-1)`. */
  color: string;
}

/** Values of one day or hour in the order of the series; null: not measured. */
export interface Column {
  key: string;
  label: string;
  /** Shorter label for the axis. */
  tick?: string;
  values: readonly (number | null)[];
}

export const HEIGHT = 200;
const MARGIN = { top: 8, right: 4, bottom: 22, left: 46 };
const LABEL_WIDTH = 56;
const TICKS = 4;

export type Kind = "bars" | "lines";

export interface ChartProps {
  /** Accessible name. */
  title: string;
  kind: Kind;
  series: readonly Series[];
  columns: readonly Column[];
  /** Formats a value. */
  format: (value: number) => string;
  /** Formats a value of the axis. */
  formatTick: (value: number) => string;
  /** Minimum distance between axis ticks, such as 1 for counts. */
  tickStep?: number;
  /** Shows the sum of each column. */
  withTotal?: boolean;
  /** Time that a column stands for; a day by default. */
  unit?: "day" | "hour";
  /** Returns the address that a column leads to, by its key. */
  pathOf?: ((key: string) => string) | undefined;
}

export type Plot = ReturnType<typeof plotOf>;

/** Computes the layout of a chart in pixels. Bars are stacked, lines are not. */
export function plotOf(columns: readonly Column[], kind: Kind, width: number, tickStep = 0) {
  const heights = columns.map(({ values }) => {
    const known = values.map((value) => value ?? 0);
    return kind === "bars" ? known.reduce((sum, value) => sum + value, 0) : Math.max(0, ...known);
  });
  const highest = Math.max(0, ...heights);
  const count = tickStep === 0 ? TICKS : Math.max(1, Math.min(TICKS, Math.ceil(highest / tickStep)));
  const y = scaleLinear()
    .domain([0, highest === 0 ? 1 : Math.max(highest, tickStep)])
    .nice(count)
    .range([HEIGHT - MARGIN.bottom, MARGIN.top]);
  const x = scaleBand<string>()
    .domain(columns.map(({ key }) => key))
    .range([MARGIN.left, Math.max(MARGIN.left + 1, width - MARGIN.right)])
    .paddingInner(0.25)
    .paddingOuter(0.1);
  return {
    x: (key: string) => x(key) ?? 0,
    middle: (key: string) => (x(key) ?? 0) + x.bandwidth() / 2,
    step: x.step(),
    barWidth: Math.min(x.bandwidth(), 48),
    y: (value: number) => y(value),
    ticks: highest === 0 ? [0] : y.ticks(count),
    left: MARGIN.left,
    right: width - MARGIN.right,
    top: MARGIN.top,
    bottom: HEIGHT - MARGIN.bottom,
    labelled: labelled(columns, width - MARGIN.left - MARGIN.right),
  };
}

/** Returns as many labels as fit next to each other, always including the last one. */
function labelled(columns: readonly Column[], width: number): readonly Column[] {
  const fitting = Math.max(1, Math.floor(width / LABEL_WIDTH));
  const every = Math.max(1, Math.ceil(columns.length / fitting));
  return columns.filter((_, index) => (columns.length - 1 - index) % every === 0);
}
