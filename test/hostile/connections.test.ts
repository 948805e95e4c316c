import { afterAll, beforeAll, expect, test } from "vitest";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { fuzzConnections } from "./attacks/fuzz.ts";
import { type AttackedService, startAttackedService } from "./attacks/service.ts";

const CONNECTIONS = countOf("connections");

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
    await fuzzConnections(target, { connections: CONNECTIONS, seed: seedOfRun() });
    expect(service.child.exitCode).toBeNull();
    expect(service.output()).not.toMatch(/"level":"(error|fatal)"/);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  },
  timeoutOf("connections"),
);
