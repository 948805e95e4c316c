import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { OperatorError } from "../errors.ts";
import { loadOptional } from "./parts.ts";

const NAME = "@redis/client";

test("An optional package that is not installed is named, with the command that installs it.", async () => {
  const absent: string = "@tollgate/none-such";
  const loading = loadOptional("redis needs", NAME, () => import(absent));
  const version = packageJson.optionalDependencies[NAME];
  await expect(loading).rejects.toThrow(
    new OperatorError(`redis needs the package ${NAME}, which is not installed: npm install ${NAME}@${version}`),
  );
});

test("An optional package that is installed and broken fails with its own error.", async () => {
  const broken = new TypeError("broken");
  await expect(loadOptional("redis needs", NAME, () => Promise.reject(broken))).rejects.toBe(broken);
});
