import { expect, test } from "vitest";
import { facts, table } from "./command.ts";

test("texts stand to the left, numbers to the right", () => {
  expect(
    table(
      ["ID", "CREDITS"],
      [
        ["org_a", "100"],
        ["org_longer", "0.5"],
      ],
    ),
  ).toBe("ID          CREDITS\norg_a           100\norg_longer      0.5");
});

test("without rows the headings stand alone", () => {
  expect(table(["ID", "NAME"], [])).toBe("ID  NAME");
});

test("facts are aligned", () => {
  expect(facts({ id: "org_a", credits: "1 of 2 available" })).toBe("id       org_a\ncredits  1 of 2 available");
});
