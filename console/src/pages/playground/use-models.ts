import { useQuery } from "@tanstack/react-query";
import type { ModelList } from "../../../../src/contract/model.ts";
import { failureOf } from "../../api/client.ts";
import { apiBaseUrl } from "../../base-path.ts";
import { useSession } from "../../shell/session.ts";

/** The models that the playground's token may ask, from `/v1` itself. */
export function usePlaygroundModels(organizationId: string | null, token: () => Promise<string>) {
  const { role } = useSession();
  return useQuery({
    queryKey: ["playground-models", role, organizationId],
    enabled: role !== "operator" || organizationId !== null,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const headers = { authorization: `Bearer ${await token()}` };
      const answer = await fetch(`${apiBaseUrl()}/models`, { credentials: "omit", headers, signal });
      if (!answer.ok) throw await failureOf(answer);
      return ((await answer.json()) as ModelList).data;
    },
  });
}
