import { LLMock } from "@copilotkit/aimock";
import { expect } from "vitest";
import { makeOrganization, type Organization, type RunningService, startService, usageOf } from "./service.ts";
import { type Behaviour, startUpstream, type Upstream } from "./upstream.ts";

/** A service with models that do not chat, and an organization with credits. */
export interface TaskService {
  upstream: Upstream;
  service: RunningService;
  organization: Organization;
  end(): Promise<void>;
}

/**
 * Starts a service whose models have the scripted behaviours of the provider `up`. The provider `foreign` is an upstream that
 * nobody here wrote, which `script` prepares; `claude` speaks another wire.
 */
export async function startTaskService(
  behaviours: Record<string, Behaviour>,
  script: (foreign: LLMock) => void,
  models: object[],
): Promise<TaskService> {
  const upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(behaviours)) upstream.behave(model, behaviour);
  const foreign = new LLMock({ port: 0 });
  script(foreign);
  await foreign.start();
  const providers = [
    upstream.provider,
    { id: "foreign", kind: "openai-compatible", baseUrl: `${foreign.url}/v1`, apiKey: "mock" },
    { id: "claude", kind: "anthropic", apiKey: "k" },
  ];
  const service = await startService({ config: { limits: { requestsPerMinute: 10_000 }, providers, models } });
  const organization = await makeOrganization(service, "100000000");
  const end = async () => {
    await service.end();
    await foreign.stop();
    await upstream.close();
  };
  return { upstream, service, organization, end };
}

/** Returns the credits that a request took, and its answer. Fails if any are still held then. */
export async function chargedIn<Answer>(
  service: RunningService,
  { token }: Pick<Organization, "token">,
  run: () => Promise<Answer>,
): Promise<{ answer: Answer; cost: number }> {
  const before = await usageOf(service, token);
  const answer = await run();
  const after = await usageOf(service, token);
  expect(after.creditsHeld).toBe(0);
  return { answer, cost: before.creditsAvailable - after.creditsAvailable };
}
