import { expect, test } from "vitest";
import { statedOutput } from "../api/chat/decode.ts";
import { estimatePrompt } from "../credits/estimate.ts";
import { StoppedError } from "../errors.ts";
import { admit } from "./admit.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import type { WantedLimits } from "./limits.ts";
import { outputRange } from "./output-bound.ts";
import type { Plan } from "./plan.ts";

const GATEWAY = {
  completionMaxTokens: 4_096,
  limitSettings: { tokensPerMinute: 1_000_000, requestsPerMinute: 100, concurrentRequests: 10 },
  limits: { partOf: (limit: number) => limit },
  playground: {},
};
const PRINCIPAL = { organizationId: "org_a", organizationKind: "customer", tokenId: "tok_a", limitingBudgets: [] };

test("The tokens per minute cover the answers of all choices, also those that a count of the prompt allows.", async () => {
  const model = { id: "m", imageTokensMax: 0, contextWindow: 128_000, maxOutputTokens: 64_000 };
  const takenWith = async (n: number) => {
    const messages = [{ role: "user" as const, content: "x".repeat(480_000) }];
    const request = { model: "m", messages, max_completion_tokens: 64_000, n };
    const taken: number[] = [];
    const admitted = (wanted: WantedLimits) => {
      taken.push(wanted.tokens);
      throw new Error("This is all that the test needs");
    };
    const call = { principal: PRINCIPAL, limited: { admit: admitted } } as unknown as GatewayCall;
    const [estimate, output] = [estimatePrompt(request, model), statedOutput(request)];
    const plan = { operation: "chat", model, output, estimate, routes: [], labels: null } as unknown as Plan;
    await expect(admit(GATEWAY as unknown as Gateway, call, plan)).rejects.toThrow("all that the test needs");
    const counted = { ...plan, estimate: { ...estimate, textTokens: 40_000 } };
    const { most } = outputRange(GATEWAY as unknown as Gateway, call.principal, counted);
    expect(most).toBe(64_000);
    return { taken: taken[0] ?? 0, used: 40_000 + n * most };
  };
  const [one, several] = [await takenWith(1), await takenWith(8)];
  expect(one.taken).toBeGreaterThan(one.used);
  expect(one.taken).toBeLessThan(model.contextWindow);
  expect(several.taken).toBe(one.taken + 7 * 64_000);
  expect(several.taken).toBeGreaterThan(several.used);
});

const REASONS = [new Error("The client disconnected"), new StoppedError("The service is stopping")];

test.each(REASONS)("No credits are held for a request that ends while its prompt is counted: %s.", async (reason) => {
  const model = { id: "m", imageTokensMax: 0, contextWindow: 8_000, maxOutputTokens: 4_000 };
  const request = { model: "m", messages: [{ role: "user" as const, content: "word ".repeat(5_000) }] };
  const controller = new AbortController();
  const left: number[] = [];
  let holds = 0;
  const gateway = {
    ...GATEWAY,
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
    principal: PRINCIPAL,
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
