import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { WIRES } from "../scripts/fields/wires.ts";
import { FIELDS_PAGE, observeWire, withFieldTables } from "../scripts/fields-table.ts";

describe.each(WIRES)("The published fields of $name", (wire) => {
  const rows = observeWire(wire);

  test("are passed, translated, named or refused: none is lost.", () => {
    const faults = rows.filter(({ fields: { lost, unclear } }) => lost.length + unclear.length > 0);
    expect(faults).toEqual([]);
  });

  test("are all in the table.", () => {
    const { definitions = {} } = wire.schema();
    const names = new Set(
      Object.values(definitions).flatMap((one) => Object.keys((typeof one === "object" && one.properties) || {})),
    );
    const listed = new Set(rows.flatMap(({ fields }) => Object.values(fields).flat()));
    expect(names.size).toBeGreaterThan(50);
    expect([...names].filter((name) => !listed.has(`\`${name}\``))).toEqual([]);
  });
});

test("docs/fields.md has the tables that scripts/fields-table.ts writes.", () => {
  const page = readFileSync(FIELDS_PAGE, "utf8");
  expect(withFieldTables(page)).toBe(page);
});

test("A field that the service does not know is found to be named, and one that it loses to be lost.", () => {
  const [chat] = WIRES;
  if (chat === undefined) throw new Error("There is no wire");
  const schema = () => ({
    type: "object" as const,
    properties: { model: { type: "string" as const }, mood: { type: "string" as const } },
  });
  const [row] = observeWire({ ...chat, schema });
  expect(row?.fields).toMatchObject({ passed: ["`model`"], named: ["`mood`"], lost: [] });
  const decode = (body: unknown) => chat.decode({ ...(body as object), mood: undefined });
  expect(observeWire({ ...chat, schema, decode })[0]?.fields).toMatchObject({ named: [], lost: ["`mood`"] });
});
