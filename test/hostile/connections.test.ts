import { afterAll, beforeAll, expect, test } from "vitest";
import { fuzzConnections } from "./attacks/fuzz.ts";
import { type AttackedService, startAttackedService } from "./attacks/service.ts";

/** For soaks: FUZZ_CONNECTIONS=100000 FUZZ_SEED=1 vitest run test/hostile/connections.test.ts */
const CONNECTIONS = Number(process.env.FUZZ_CONNECTIONS ?? 500);
const SEED = Number(process.env.FUZZ_SEED ?? Date.now() % 1_000_000);
const CONNECTIONS_A_SECOND_LEAST = 5;

let attacked: AttackedService;

beforeAll(async () => {
  attacked = await startAttackedService();
});

afterAll(async () => {
  await attacked?.end();
});

test(
  `${CONNECTIONS} connections that break off at any byte neither end the service nor harm another one`,
  async () => {
    const { service, target } = attacked;
    await fuzzConnections(target, { connections: CONNECTIONS, seed: SEED });
    expect(service.child.exitCode).toBeNull();
    expect(service.output()).not.toMatch(/"level":"(error|fatal)"/);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  },
  60_000 + (CONNECTIONS / CONNECTIONS_A_SECOND_LEAST) * 1_000,
);
