import fc from "fast-check";
import { expect, test } from "vitest";
import { NameMap } from "./names.ts";

const name = fc.record({ organizationId: fc.constantFrom("org_a", "org_b", "org_c"), id: fc.constantFrom("1", "2") });
const operation = fc.oneof(
  name.map((of) => ({ ...of, kind: "set" as const })),
  name.map((of) => ({ ...of, kind: "delete" as const })),
);

test("A map by organization and id is equivalent to a map of both texts joined.", () => {
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 30 }), (operations) => {
      const map = new NameMap<number>();
      const plain = new Map<string, number>();
      for (const [value, { kind, organizationId, id }] of operations.entries()) {
        const key = `${organizationId} ${id}`;
        if (kind === "set") map.set(organizationId, id, value);
        else map.delete(organizationId, id);
        if (kind === "set") plain.set(key, value);
        else plain.delete(key);
        expect(map.has(organizationId, id)).toBe(plain.has(key));
        expect(map.get(organizationId, id)).toBe(plain.get(key));
        expect(map.size).toBe(plain.size);
        expect(map.values().sort()).toEqual([...plain.values()].sort());
      }
    }),
    { numRuns: 500 },
  );
});
