import type { ReactNode } from "react";
import { SkeletonRows } from "./states.tsx";

export interface Column<T> {
  head: string;
  cell: (row: T) => ReactNode;
  /** Aligns the column to the right, for numbers. */
  right?: boolean;
  /** Hides the column on narrow screens. */
  wideOnly?: boolean;
}

interface TableProps<T> {
  /** Accessible name. */
  caption: string;
  columns: readonly Column<T>[];
  /** Undefined while they load. */
  rows: readonly T[] | undefined;
  keyOf: (row: T) => string;
  /** Shown instead of the table if there are no rows. */
  empty: ReactNode;
  skeletonRows?: number;
}

export function Table<T>({ caption, columns, rows, keyOf, empty, skeletonRows = 6 }: TableProps<T>) {
  if (rows?.length === 0) return empty;
  const classOf = ({ right, wideOnly }: Column<T>) =>
    [right && "right", right && "figures", wideOnly && "wide-only"].filter(Boolean).join(" ") || undefined;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard
    <section className="table-scroll" tabIndex={0} aria-label={caption}>
      <table className="table" aria-busy={rows === undefined}>
        <caption className="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" className={classOf(column)}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows === undefined ? (
            <SkeletonRows rows={skeletonRows} columns={columns.length} />
          ) : (
            rows.map((row) => (
              <tr key={keyOf(row)}>
                {columns.map((column) => (
                  <td key={column.head} className={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))
          )}
        </tbody>
      </table>
    </section>
  );
}
