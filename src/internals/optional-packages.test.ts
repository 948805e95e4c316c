import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { installationFolder, installCommand, missingOf, notInstalledText } from "./optional-packages.ts";

const all = Object.keys(packageJson.optionalDependencies);

test("Every optional package is found where it is installed, and one that is not is missing.", () => {
  expect(missingOf([...all, "@tollgate/none-such"])).toEqual(["@tollgate/none-such"]);
});

test("The command that installs packages names their tested versions and the folder of the installation.", () => {
  const version = packageJson.optionalDependencies["@redis/client"];
  expect(installCommand(["@redis/client"])).toBe(`npm install @redis/client@${version}`);
  expect(installCommand(["@redis/client"], "/opt/tollgate")).toBe(
    `npm install --prefix /opt/tollgate @redis/client@${version}`,
  );
  expect(notInstalledText(["@redis/client"])).toContain(
    "the package @redis/client, which is not installed: npm install",
  );
  expect(import.meta.filename.startsWith(installationFolder())).toBe(true);
});
