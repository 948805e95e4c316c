import { skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { send } from "../../api/client.ts";
import { organization } from "../../api/queries.ts";
import type { PlaygroundToken } from "../../api/types.ts";
import { useSession } from "../../shell/session.ts";

/** A token that expires sooner is not used for a new request. */
const SPARE_MS = 5 * 60_000;

const keyOf = (organizationId: string | null) => ["playground-token", organizationId];

/**
 * Returns if prompts and answers are stored; undefined while that is not known. `organizationId`: the one that an operator
 * chose, null for a member's own and for guests, whose token says so.
 */
export function useIsStored(organizationId: string | null): boolean | undefined {
  const session = useSession();
  const id = organizationId ?? session.organization?.id;
  const payer = useQuery({ ...organization(id ?? ""), enabled: id !== undefined });
  const token = useQuery<PlaygroundToken>({ queryKey: keyOf(null), queryFn: skipToken });
  return session.role === null ? token.data?.keeps_conversations : payer.data?.keeps_conversations;
}

/**
 * Short-lived tokens for `/v1`, in memory only. `null`: the one that is implied, a member's own organization or that of
 * guests. Created for the first message; reused until it is about to expire.
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
