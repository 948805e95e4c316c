import { useQuery } from "@tanstack/react-query";
import type { ModelList } from "../../../../src/api/model.ts";
import { failureOf } from "../../api/client.ts";
import { models } from "../../api/queries.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { useSession } from "../../shell/session.ts";

/**
 * Models to choose from. Whoever is signed in gets them from the admin API, which needs no playground token. Guests are
 * not charged, and read them from `/v1` with a token of the playground organization.
 */
export function usePlaygroundModels(token: () => Promise<string>) {
  const isGuest = useSession().role === null;
  const listed = useQuery({ ...models, enabled: !isGuest, select: ({ data }) => data });
  const ofGuests = useQuery({
    queryKey: ["playground-models"],
    enabled: isGuest,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const headers = { authorization: `Bearer ${await token()}` };
      const answer = await fetch(`${apiBaseUrl()}/models`, { credentials: "omit", headers, signal });
      if (!answer.ok) throw await failureOf(answer);
      return ((await answer.json()) as ModelList).data;
    },
  });
  return isGuest ? ofGuests : listed;
}
