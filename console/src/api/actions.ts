import { type QueryClient, useMutation, useQueryClient } from "@tanstack/react-query";

/**
 * What was read counts as old, and is read anew where it is shown. What is on its way is given up: it may have been
 * answered before the change, and nothing would tell.
 */
export async function renew(client: QueryClient, keys: readonly string[]): Promise<void> {
  const renewed = keys.map(async (key) => {
    await client.cancelQueries({ queryKey: [key] });
    await client.invalidateQueries({ queryKey: [key] });
  });
  await Promise.all(renewed);
}

/**
 * Something that changes the service. What was read before counts as old after it.
 * `keys`: the first words of the queries that it touches.
 */
export function useAction<Input, Output>(
  run: (input: Input) => Promise<Output>,
  keys: readonly string[],
  onDone?: (output: Output) => void,
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: (output) => {
      void renew(client, keys);
      onDone?.(output);
    },
  });
}
