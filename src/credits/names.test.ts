import fc from "fast-check";
import { expect, test } from "vitest";
import { type RowName, without } from "./names.ts";

const name = fc.record({ organizationId: fc.constantFrom("org_a", "org_b", "org_c"), id: fc.constantFrom("1", "2") });
const names = fc.array(name, { maxLength: 30 });

test("Each name is kept once, in its order, unless its row was read.", () => {
  fc.assert(
    fc.property(names, names, (wanted, read) => {
      const kept: RowName[] = [];
      for (const one of wanted) {
        const isOne = ({ organizationId, id }: RowName) => organizationId === one.organizationId && id === one.id;
        if (!read.some(isOne) && !kept.some(isOne)) kept.push(one);
      }
      expect(without(wanted, read)).toEqual(kept);
    }),
    { numRuns: 500 },
  );
});
