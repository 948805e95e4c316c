import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, test } from "vitest";
import { ROOT } from "../support/documents.ts";

const FOLDER = join(ROOT, "deploy", "systemd");
const unit = readFileSync(join(FOLDER, "tollgate.service"), "utf8");
/** The exposure that `systemd-analyze security` may find at most, in tenths of a point; it calls up to 20 "OK". */
const EXPOSURE_MAX = 15;

describe("the systemd unit", () => {
  test("gives the service a limit of memory and enough time to stop, and reloads it by SIGHUP", () => {
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThanOrEqual(610);
    expect(unit).toContain("\nExecReload=/bin/kill -HUP $MAINPID\n");
    expect(unit).not.toContain("\nMemoryDenyWriteExecute=");
    expect(unit).toMatch(/^MemoryMax=\d+G$/m);
  });

  test("the example of secrets names variables that the documentation names", () => {
    const pages = ["configuration.md", "providers.md"].map((page) => readFileSync(join(ROOT, "docs", page), "utf8"));
    const documented = pages.join("\n");
    const secrets = readFileSync(join(FOLDER, "secrets.conf"), "utf8");
    const names = [...secrets.matchAll(/^LoadCredential=(\w+):\/etc\/tollgate\/credentials\/(\w+)$/gm)];
    expect(names).not.toEqual([]);
    for (const [, name, file] of names) {
      expect(file).toBe(name);
      expect(documented, name).toContain(name as string);
    }
  });

  test("comes with a configuration that trusts the proxy of the guide's example, and that the service accepts", () => {
    const words = ["src/main.ts", "config", "check", "--config", join(FOLDER, "tollgate.yaml")];
    expect(spawnSync(process.execPath, words, { cwd: ROOT, encoding: "utf8" }).stdout).toContain(
      "The configuration is valid",
    );
    expect(readFileSync(join(FOLDER, "tollgate.yaml"), "utf8")).toContain("trustProxy: 127.0.0.1\n");
    expect(unit).toContain(" --config /etc/tollgate/tollgate.yaml ");
  });

  test.skipIf(!inject("hasSystemdAnalyze"))("passes systemd's own checks", () => {
    const folder = mkdtempSync(join(tmpdir(), "tollgate-systemd-"));
    try {
      const file = join(folder, "tollgate.service");
      // The check wants the program to be there; that of this process stands for it.
      writeFileSync(file, unit.replace("/usr/bin/node", process.execPath));
      const verified = spawnSync("systemd-analyze", ["verify", file], { encoding: "utf8" });
      expect(verified.stderr).not.toContain("tollgate.service:");
      const options = ["security", "--offline=true", "--no-pager", `--threshold=${EXPOSURE_MAX}`];
      const rated = spawnSync("systemd-analyze", [...options, file], { encoding: "utf8" });
      expect(rated.status, rated.stdout).toBe(0);
      expect(rated.stdout).toContain("Overall exposure level for tollgate.service");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
