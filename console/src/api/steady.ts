import { useState } from "react";

interface Attempt<Data> {
  data: Data | undefined;
  error: unknown;
  isError: boolean;
  isPending: boolean;
}

/**
 * Keeps the error of a query without data until it succeeds. Otherwise every new attempt would replace the error by the
 * placeholder, every few seconds while the service is down.
 */
export function useSteady<Data, Query extends Attempt<Data>>(query: Query & Attempt<Data>): Query {
  const [kept, setKept] = useState<unknown>(null);
  const current = query.isError ? query.error : query.data === undefined ? kept : null;
  if (current !== kept) setKept(current);
  const isFailing = current !== null;
  return { ...query, error: current, isError: isFailing, isPending: query.isPending && !isFailing };
}
