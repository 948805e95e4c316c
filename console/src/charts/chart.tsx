import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { DataTable } from "./data-table.tsx";
import { Axes, Bars, Lines, Points } from "./marks.tsx";
import { type ChartProps, type Column, HEIGHT, type Kind, type Plot, plotOf, type Series } from "./scales.ts";

/** Chart over days or hours. Its values can be read by pointer, with the arrow keys, or in a table. */
export function Chart(props: ChartProps) {
  const { series } = props;
  return (
    <figure className="chart">
      <PlotArea {...props} />
      <figcaption>
        <ul className="legend" aria-label="Legend">
          {series.map(({ name, color }) => (
            <li key={name}>
              <span className="swatch" style={{ background: color }} />
              <span className="truncate">{name}</span>
            </li>
          ))}
        </ul>
      </figcaption>
      <DataTable {...props} />
    </figure>
  );
}

function PlotArea({
  title,
  kind,
  series,
  columns,
  format,
  formatTick,
  tickStep,
  withTotal,
  unit = "day",
  pathOf,
}: ChartProps) {
  const [box, width] = useWidth();
  const plot = plotOf(columns, kind, width, tickStep);
  const [shown, setShown] = useState<string | null>(null);
  const [home, setHome] = useState<string | null>(null);
  const reached = columns.some(({ key }) => key === home) ? home : columns.at(-1)?.key;
  const tipColumn = columns.find(({ key }) => key === shown);
  const move = (event: KeyboardEvent<SVGSVGElement>) => {
    const at = columns.findIndex(({ key }) => key === reached);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: columns.length - 1 }[event.key];
    const target = to === undefined ? undefined : columns[to];
    if (event.key === "Escape") setShown(null);
    if (target === undefined) return;
    event.preventDefault();
    setHome(target.key);
    event.currentTarget.querySelector<SVGElement>(`[data-key="${CSS.escape(target.key)}"]`)?.focus();
  };
  return (
    <div className="chart-plot" ref={box}>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset cannot contain an SVG */}
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        height={HEIGHT}
        role="group"
        aria-label={`${title}. Use the arrow keys to move between ${unit}s.`}
        onKeyDown={move}
      >
        <Axes plot={plot} format={formatTick} />
        {kind === "lines" && <Lines columns={columns} series={series} plot={plot} />}
        {columns.map((column) => (
          <Slot
            key={column.key}
            {...{ column, series, plot, kind }}
            words={inWords(column, series, format, withTotal)}
            isReached={column.key === reached}
            path={pathOf?.(column.key)}
            onShown={(isShown) => setShown(isShown ? column.key : null)}
          />
        ))}
      </svg>
      {tipColumn && (
        <Tip
          column={tipColumn}
          series={series}
          format={format}
          withTotal={withTotal}
          at={plot.middle(tipColumn.key)}
          width={width}
        />
      )}
    </div>
  );
}

interface SlotProps {
  column: Column;
  series: readonly Series[];
  plot: Plot;
  kind: Kind;
  words: string;
  /** True for the one column that the Tab key reaches. */
  isReached: boolean;
  /** Address that the column leads to. */
  path: string | undefined;
  onShown: (isShown: boolean) => void;
}

/** One column of the chart, with its whole height as the pointer target. */
function Slot({ column, series, plot, kind, words, isReached, path, onShown }: SlotProps) {
  const attributes = {
    "data-key": column.key,
    className: "chart-column",
    "aria-label": words,
    tabIndex: isReached ? 0 : -1,
    onFocus: () => onShown(true),
    onBlur: () => onShown(false),
    onPointerEnter: () => onShown(true),
    onPointerLeave: () => onShown(false),
  };
  const content = (
    <>
      <rect
        className="catch"
        x={plot.middle(column.key) - plot.step / 2}
        y={plot.top}
        width={plot.step}
        height={plot.bottom - plot.top}
      />
      {kind === "bars" ? <Bars {...{ column, series, plot }} /> : <Points {...{ column, series, plot }} />}
    </>
  );
  if (path !== undefined) {
    return (
      <Link href={path} {...attributes}>
        {content}
      </Link>
    );
  }
  return (
    // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: a part of the chart, reached with the arrow keys
    <g role="img" {...attributes}>
      {content}
    </g>
  );
}

type InWords = Pick<ChartProps, "series" | "format" | "withTotal">;

/** Returns the parts to name: those of 0 are left out of a total, and named where there is none. */
function partsOf(column: Column, { series, format, withTotal }: InWords) {
  return column.values.flatMap((value, index) => {
    const of = series[index];
    return value === null || (value === 0 && withTotal) || of === undefined ? [] : [{ ...of, text: format(value) }];
  });
}

const totalOf = ({ values }: Column) => values.reduce<number>((sum, value) => sum + (value ?? 0), 0);

function inWords(column: Column, series: readonly Series[], format: ChartProps["format"], withTotal?: boolean): string {
  const parts = partsOf(column, { series, format, withTotal }).map(({ name, text }) => `${name} ${text}`);
  const total = withTotal ? `${format(totalOf(column))} in total` : "";
  return `${column.label}: ${[total, ...parts].filter(Boolean).join(", ") || "not measured"}`;
}

interface TipProps extends InWords {
  column: Column;
  at: number;
  width: number;
}

function Tip({ column, at, width, ...chart }: TipProps) {
  const isRight = at > width / 2;
  const parts = partsOf(column, chart);
  return (
    <div className="tip" style={isRight ? { right: width - at + 12 } : { left: at + 12 }} aria-hidden="true">
      <strong>{column.label}</strong>
      {chart.withTotal && <span className="figures">{chart.format(totalOf(column))}</span>}
      <ul>
        {parts.map(({ name, color, text }) => (
          <li key={name}>
            <span className="swatch" style={{ background: color }} />
            <span className="truncate">{name}</span>
            <span className="figures">{text}</span>
          </li>
        ))}
      </ul>
      {parts.length === 0 && !chart.withTotal && <span className="faint">Not measured</span>}
    </div>
  );
}

const FIRST_WIDTH = 640;

function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(FIRST_WIDTH);
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.max(200, Math.floor(element.clientWidth))));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width] as const;
}
