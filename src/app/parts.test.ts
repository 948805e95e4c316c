import { expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import { notInstalledText } from "../internals/optional-packages.ts";
import { loadOptional } from "./parts.ts";

const NAME = "@redis/client";

test("An optional package that is not installed is named, with the command that installs it.", async () => {
  const absent: string = "@tollgate/none-such";
  const loading = loadOptional("redis needs", NAME, () => import(absent));
  await expect(loading).rejects.toThrow(new OperatorError(`redis needs ${notInstalledText([NAME])}`));
});

test("An optional package that is installed and broken fails with its own error.", async () => {
  const broken = new TypeError("broken");
  await expect(loadOptional("redis needs", NAME, () => Promise.reject(broken))).rejects.toBe(broken);
});
