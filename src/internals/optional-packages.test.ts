import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { installationFolder, installCommand, missingOf, notInstalledText } from "./optional-packages.ts";

const all = Object.keys(packageJson.optionalDependencies);

test("Every optional package is found where it is installed, and one that is not is missing.", () => {
  expect(missingOf([...all, "@tollgate/none-such"])).toEqual(["@tollgate/none-such"]);
});

test("The command that installs packages names their tested versions and the folder of the installation.", () => {
  const version = packageJson.optionalDependencies["@redis/client"];
  const names = ["@redis/client"];
  expect(installCommand(names, undefined, "/opt/tollgate")).toBe(`npm install @redis/client@${version}`);
  expect(installCommand(names, "'/opt/tollgate'", "/opt/tollgate")).toBe(
    `npm install --prefix '/opt/tollgate' @redis/client@${version}`,
  );
  const inClone = `node ${installationFolder()}/scripts/ensure-installed.js`;
  expect(notInstalledText(names)).toBe(`the package @redis/client, which is not installed: ${inClone}`);
  expect(import.meta.filename.startsWith(installationFolder())).toBe(true);
});
