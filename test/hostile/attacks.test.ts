import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readDocuments, tableOf } from "../support/documents.ts";
import { ATTACKS } from "./attacks/index.ts";
import { tableRows } from "./attacks/run.ts";
import { type AttackedService, startAttackedService } from "./attacks/service.ts";

describe.each(Object.entries(ATTACKS))("%s", (_area, attacks) => {
  let attacked: AttackedService;

  beforeAll(async () => {
    attacked = await startAttackedService();
  });

  afterAll(async () => {
    await attacked?.end();
  });

  test.each(attacks.map((attack) => [attack.title, attack] as const))("%s", async (_title, attack) => {
    await attack.play(attacked.target);
  });

  test("Afterwards the service is ready, its books balance and its log has no error.", async () => {
    const { service } = attacked;
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
    const lines = service.output().split("\n");
    expect(lines.filter((line) => /"level":"(error|fatal)"/.test(line))).toEqual([]);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });
});

test("docs/attacks.md lists every attack as `npm run attack -- --write` writes it.", () => {
  const page = readDocuments().find(({ path }) => path === "docs/attacks.md");
  if (page === undefined) throw new Error("There is no docs/attacks.md");
  const results = Object.entries(ATTACKS).flatMap(([area, attacks]) =>
    attacks.map((attack) => ({ area, attack, outcome: "held" as const })),
  );
  expect(tableOf(page, "what must hold")).toEqual(tableRows(results));
});
