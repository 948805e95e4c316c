import { Link } from "wouter";
import { foldingOf, Rows } from "../ui/table.tsx";
import type { ChartProps } from "./scales.ts";

/** Values of a chart as a table. */
export function DataTable({
  title,
  series,
  columns,
  format,
  unit = "day",
  pathOf,
}: Pick<ChartProps, "title" | "series" | "columns" | "format" | "unit" | "pathOf">) {
  const folding = foldingOf(series.length + 1);
  return (
    <details className="chart-table">
      <summary>Show as table</summary>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard */}
      <section className="table-scroll" data-folds={folding} tabIndex={0} aria-label={`${title}, table`}>
        <table className="table">
          <caption className="visually-hidden">{title}</caption>
          <thead>
            <tr>
              <th scope="col">{unit === "day" ? "Day" : "Hour"}</th>
              {series.map(({ name }) => (
                <th key={name} scope="col" className="right">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <Rows>
            {columns.toReversed().map(({ key, label, values }) => (
              <tr key={key}>
                <th scope="row">{pathOf === undefined ? label : <Link href={pathOf(key)}>{label}</Link>}</th>
                {series.map(({ name }, index) => {
                  const value = values[index];
                  return (
                    <td key={name} className="right figures" data-label={name}>
                      {value == null ? "–" : format(value)}
                    </td>
                  );
                })}
              </tr>
            ))}
          </Rows>
        </table>
      </section>
    </details>
  );
}
