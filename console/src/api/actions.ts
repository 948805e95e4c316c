import { useMutation, useQueryClient } from "@tanstack/react-query";

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
      for (const key of keys) void client.invalidateQueries({ queryKey: [key] });
      onDone?.(output);
    },
  });
}
