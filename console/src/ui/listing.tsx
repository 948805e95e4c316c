import type { ReactNode } from "react";
import { Button } from "./button.tsx";
import { type FailingQuery, QueryFailure } from "./states.tsx";
import { type Column, Table } from "./table.tsx";

/** Paginated list, as returned by `useList`. */
interface List<T> extends FailingQuery {
  rows: T[] | undefined;
  isFetchingNextPage: boolean;
  hasNextPage: boolean;
  fetchNextPage: () => unknown;
}

interface ListingProps<T> {
  caption: string;
  list: List<T>;
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  empty: ReactNode;
  skeletonRows?: number;
}

/** Table of a paginated list, with its errors and a button for more rows. Rows stay visible after an error. */
export function Listing<T>({ list, ...table }: ListingProps<T>) {
  const { rows, isError, hasNextPage } = list;
  return (
    <>
      <QueryFailure query={list} />
      {(rows !== undefined || !isError) && <Table {...table} rows={rows} />}
      {hasNextPage && (
        <div className="more">
          <Button onClick={() => list.fetchNextPage()} busy={list.isFetchingNextPage}>
            Show more
          </Button>
        </div>
      )}
    </>
  );
}
