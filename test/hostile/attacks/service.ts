import { makeOrganization, type RunningService, startService } from "../../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream } from "../../support/upstream.ts";
import type { Target } from "./attack.ts";

export interface AttackedService {
  service: RunningService;
  target: Target;
  end(): Promise<void>;
}

const answer = answering({ words: ["Fine"], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });

/** Answers with the status that the last message asks for. */
const fragile: Behaviour = (request) => {
  const messages = request.body.messages as { content: string }[];
  const [, status, seconds] = /^status (\d{3})(?: retry-after (\d+))?$/.exec(messages.at(-1)?.content ?? "") ?? [];
  if (status === undefined) return answer(request);
  const headers: Record<string, string> = seconds === undefined ? {} : { "retry-after": seconds };
  sendJson(request.response, Number(status), { error: { message: "As you wish" } }, headers);
};

/** Starts a service with a provider that fails on demand, an organization with credits and an admin token. */
export async function startAttackedService(): Promise<AttackedService> {
  const upstream = await startUpstream();
  upstream.behave("fragile", fragile);
  const model = { id: "fragile", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "fragile" }] };
  // With its own limits of overload, unlike in other tests.
  const config = { providers: [upstream.provider], models: [model], server: { overload: {} } };
  const service = await startService({ config });
  const { token } = await makeOrganization(service, "1000000");
  const { token: adminToken } = await service.tollgate<{ token: string }>("admin", "token");
  return {
    service,
    target: { url: service.url, token, adminToken, fragileModel: model.id },
    end: async () => {
      await service.end();
      await upstream.close();
    },
  };
}
