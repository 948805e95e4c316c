import type { ReactNode } from "react";
import { Button } from "./button.tsx";
import { Failure } from "./states.tsx";
import { type Column, Table } from "./table.tsx";

/** Paginated list, as returned by `useList`. */
interface List<T> {
  rows: T[] | undefined;
  error: unknown;
  isError: boolean;
  isFetching: boolean;
  isFetchingNextPage: boolean;
  hasNextPage: boolean;
  refetch: () => unknown;
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
      {isError && <Failure error={list.error} onRetry={() => list.refetch()} retrying={list.isFetching} />}
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
