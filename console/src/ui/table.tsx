import type { MouseEvent, ReactNode } from "react";
import { SkeletonRows } from "./states.tsx";

export interface Column<T> {
  head: string;
  cell: (row: T) => ReactNode;
  /** Aligns the column to the right, for numbers. */
  right?: boolean;
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
  /** Keeps the table as it is in a narrow place, where others become cards. */
  isPlain?: boolean;
}

/** Columns from which on a table needs most of a wide page. */
const MANY_COLUMNS = 6;
const CARD_COLUMNS_MIN = 4;

/** Returns when the rows of a table become cards: in a place that is too narrow for few or for many columns, or never. */
export function foldingOf(columns: number): "few" | "many" | undefined {
  if (columns < CARD_COLUMNS_MIN) return undefined;
  return columns < MANY_COLUMNS ? "few" : "many";
}

export function Table<T>({ caption, columns, rows, keyOf, empty, skeletonRows = 6, isPlain }: TableProps<T>) {
  if (rows?.length === 0) return empty;
  const folding = foldingOf(isPlain ? 0 : columns.length);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolling areas must be reachable by keyboard
    <section className="table-scroll" data-folds={folding} tabIndex={0} aria-label={caption}>
      <table className="table" aria-busy={rows === undefined}>
        <caption className="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" className={column.right ? "right figures" : undefined}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <Rows>
          {rows === undefined ? (
            <SkeletonRows rows={skeletonRows} heads={columns.map(({ head }) => head)} />
          ) : (
            rows.map((row) => (
              <tr key={keyOf(row)}>
                {columns.map((column) => (
                  <td key={column.head} className={column.right ? "right figures" : undefined} data-label={column.head}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))
          )}
        </Rows>
      </table>
    </section>
  );
}

/** Rows of a table. A click on a row follows its first link, which the keyboard reaches itself. */
export function Rows({ children }: { children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the keyboard uses the links
    <tbody className="rows" onClick={followRow}>
      {children}
    </tbody>
  );
}

/** Follows the first link of a row, unless the click was on a link, in a cell with another control, or selected text. */
function followRow({ target, ctrlKey, metaKey, shiftKey, altKey }: MouseEvent): void {
  const place = target as Element;
  const cell = place.closest(":is(td,th)");
  const isControl = place.closest("a") !== null || cell?.querySelector("button, input, select, summary, textarea");
  const isSelecting = getSelection()?.isCollapsed === false;
  if (isControl || isSelecting || ctrlKey || metaKey || shiftKey || altKey) return;
  place.closest("tr")?.querySelector<HTMLAnchorElement>("a[href]")?.click();
}
