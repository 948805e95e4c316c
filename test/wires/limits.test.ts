import { describe, expect, test } from "vitest";
import { identify } from "../../src/catalog/known-providers.ts";
import { USUAL_HINTS } from "../../src/providers/fields.ts";
import { PROVIDER_KINDS } from "../../src/providers/index.ts";
import { FIXTURES } from "./fixtures.ts";

const WIRES = PROVIDER_KINDS.flatMap(({ kind, wire }) => (wire === undefined ? [] : [{ kind, wire }]));

test("every wire has fixtures", () => {
  const kinds = PROVIDER_KINDS.map(({ kind }) => kind).filter((kind) => kind !== "sandbox");
  expect(FIXTURES.map(({ kind }) => kind).sort()).toEqual(kinds.sort());
  expect(FIXTURES.every(({ documentation }) => documentation.length > 0)).toBe(true);
});

describe.each(WIRES)("what the catalog says of $kind", ({ kind, wire }) => {
  const refuses = identify({ kind, baseUrl: null })?.refuses ?? [];
  const fixture = FIXTURES.find((one) => one.kind === kind);

  test("is what the wire takes", () => {
    expect(USUAL_HINTS.filter((field) => !refuses.includes(field))).toEqual(
      USUAL_HINTS.filter((field) => wire.fields[field] !== undefined),
    );
    expect(refuses.includes("image_url.address")).toBe(wire.prompt.refusesImageAddresses === true);
  });

  test("is what the wire leaves out", () => {
    expect(refuses).toEqual(expect.arrayContaining([...(fixture?.settingsIgnored ?? ["none"])]));
    expect(refuses.includes("stop")).toBe(!JSON.stringify(fixture?.settingsSent).includes("END"));
  });
});
