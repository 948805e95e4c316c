import { skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { send } from "../../api/client.ts";
import type { PlaygroundToken } from "../../api/types.ts";

/** One that ends sooner is not begun a request with. */
const SPARE_MS = 5 * 60_000;

const keyOf = (organizationId: string | null) => ["playground-token", organizationId];

/** Whether what is asked is stored; undefined before the first token is there, which says so. */
export function useIsStored(organizationId: string | null): boolean | undefined {
  const { data } = useQuery<PlaygroundToken>({ queryKey: keyOf(organizationId), queryFn: skipToken });
  return data?.keeps_conversations;
}

/**
 * Short-lived tokens for `/v1`, in memory only. `null`: the one that is implied, a member's own organization or that of
 * guests. Asked for when one is needed; the same one serves until it is near its end.
 */
export function useTokens() {
  const client = useQueryClient();
  return useCallback(
    async (organizationId: string | null): Promise<string> => {
      const queryKey = keyOf(organizationId);
      const held = client.getQueryData<PlaygroundToken>(queryKey);
      if (held !== undefined && Date.parse(held.expires_at) - Date.now() > SPARE_MS) return held.token;
      const wanted = organizationId === null ? {} : { organization_id: organizationId };
      const made = await client.fetchQuery({
        queryKey,
        queryFn: () => send<PlaygroundToken>("POST", "/admin/v1/playground/token", wanted),
        staleTime: 0,
      });
      return made.token;
    },
    [client],
  );
}
