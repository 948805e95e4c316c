import { line } from "d3-shape";
import type { Column, Plot, Series } from "./scales.ts";

/** Gap in pixels between the segments of a bar, so that they differ by more than colour. */
const GAP = 1;

export function Bars({ column, series, plot }: { column: Column; series: readonly Series[]; plot: Plot }) {
  const left = plot.middle(column.key) - plot.barWidth / 2;
  let below = 0;
  return column.values.map((value, index) => {
    if (value === null || value <= 0) return null;
    const bottom = plot.y(below);
    below += value;
    const height = Math.max(0.5, bottom - plot.y(below) - GAP);
    const { name = "", color } = series[index] ?? {};
    return <rect key={name} x={left} y={bottom - height} width={plot.barWidth} height={height} fill={color} rx={1} />;
  });
}

interface LinesProps {
  columns: readonly Column[];
  series: readonly Series[];
  plot: Plot;
}

export function Lines({ columns, series, plot }: LinesProps) {
  return series.map(({ name, color }, index) => {
    const path = line<Column>()
      .defined(({ values }) => values[index] != null)
      .x(({ key }) => plot.middle(key))
      .y(({ values }) => plot.y(values[index] ?? 0));
    return <path key={name} className="chart-line" d={path(columns) ?? ""} stroke={color} />;
  });
}

/** Points of one column. Without them, a value between two gaps would be invisible. */
export function Points({ column, series, plot }: { column: Column; series: readonly Series[]; plot: Plot }) {
  return column.values.map((value, index) => {
    const { name = "", color } = series[index] ?? {};
    return value === null ? null : (
      <circle key={name} cx={plot.middle(column.key)} cy={plot.y(value)} r={2.5} fill={color} />
    );
  });
}

export function Axes({ plot, format }: { plot: Plot; format: (value: number) => string }) {
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: it contains no focusable element
    <g aria-hidden="true">
      {plot.ticks.map((tick) => (
        <g key={tick}>
          <line
            className={tick === 0 ? "base-line" : "grid-line"}
            x1={plot.left}
            x2={plot.right}
            y1={plot.y(tick)}
            y2={plot.y(tick)}
          />
          <text x={plot.left - 8} y={plot.y(tick)} dy="0.32em" textAnchor="end">
            {format(tick)}
          </text>
        </g>
      ))}
      {plot.labelled.map(({ key, label, tick }) => (
        <text key={key} x={plot.middle(key)} y={plot.bottom + 16} textAnchor="middle">
          {tick ?? label}
        </text>
      ))}
    </g>
  );
}
