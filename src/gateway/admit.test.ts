import { expect, test } from "vitest";
import { statedOutput } from "../api/chat/decode.ts";
import { estimatePrompt } from "../credits/estimate.ts";
import { StoppedError } from "../errors.ts";
import { admit } from "./admit.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import type { Plan } from "./plan.ts";

const REASONS = [new Error("The client disconnected"), new StoppedError("The service is stopping")];

test.each(REASONS)("No credits are held for a request that ends while its prompt is counted: %s.", async (reason) => {
  const model = { id: "m", imageTokensMax: 0, contextWindow: 8_000, maxOutputTokens: 4_000 };
  const request = { model: "m", messages: [{ role: "user" as const, content: "word ".repeat(5_000) }] };
  const controller = new AbortController();
  const left: number[] = [];
  let holds = 0;
  const gateway = {
    completionMaxTokens: 4_096,
    limitSettings: { tokensPerMinute: 1_000_000, requestsPerMinute: 100, concurrentRequests: 10 },
    limits: { partOf: (limit: number) => limit },
    playground: {},
    tokenCounter: {
      countPrompt: async () => {
        controller.abort(reason);
        return undefined;
      },
    },
    ledger: {
      hold: () => {
        holds += 1;
      },
    },
  } as unknown as Gateway;
  const call = {
    principal: { organizationId: "org_a", organizationKind: "customer", tokenId: "tok_a", limitingBudgets: [] },
    idempotency: null,
    limited: { admit: () => ({ leave: (tokens: number) => left.push(tokens) }) },
    signal: controller.signal,
  } as unknown as GatewayCall;
  const estimate = estimatePrompt(request, model);
  const output = statedOutput(request);
  const plan = { operation: "chat", model, output, estimate, promptTexts: () => [], routes: [], labels: null };
  await expect(admit(gateway, call, plan as unknown as Plan)).rejects.toBe(reason);
  expect(holds).toBe(0);
  expect(left).toEqual([estimate.likely]);
});
