import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { ROOT } from "../support/documents.ts";

interface Job {
  permissions?: Record<string, string>;
  uses?: string;
  steps?: { uses?: string; run?: string; with?: Record<string, unknown> }[];
}

const FOLDER = join(ROOT, ".github", "workflows");
const files = readdirSync(FOLDER);
const texts = files.map((file) => readFileSync(join(FOLDER, file), "utf8"));
const workflows = texts.map((text): { permissions: object; jobs: Record<string, Job> } => parse(text));
const jobs = workflows.flatMap((workflow) => Object.values(workflow.jobs));
const steps = jobs.flatMap((job) => job.steps ?? []);

describe("the workflows", () => {
  test("use every action at a commit, and name its version", () => {
    const lines = texts.flatMap((text) => text.split("\n").filter((line) => /^\s*(- )?uses:/.test(line)));
    const foreign = lines.filter((line) => !line.includes("uses: ./.github/workflows/"));
    expect(foreign.length).toBeGreaterThan(10);
    for (const line of foreign) expect(line).toMatch(/ uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  test("use each action at one commit", () => {
    const used = new Map<string, Set<string>>();
    for (const { uses } of steps) {
      const [name, commit] = uses?.split("@") ?? [];
      if (name !== undefined && commit !== undefined) used.set(name, (used.get(name) ?? new Set()).add(commit));
    }
    for (const [name, commits] of used) expect([...commits], name).toHaveLength(1);
  });

  test("run the Node that the lock file pins for the service", () => {
    const runtime = JSON.parse(readFileSync(join(ROOT, "scripts", "runtime", "package.json"), "utf8"));
    const pinned = new Set(Object.values(runtime.optionalDependencies));
    const set = steps.filter(({ uses }) => uses?.startsWith("actions/setup-node@"));
    expect(new Set(set.map((step) => step.with?.["node-version"]))).toEqual(pinned);
  });

  test("state their permissions, and run no code of other packages where they can sign or publish", () => {
    for (const { permissions } of workflows) expect(permissions).toBeDefined();
    const signing = jobs.filter(({ permissions }) => permissions?.["id-token"] === "write");
    expect(signing).toHaveLength(2);
    for (const job of signing) {
      const used = job.steps?.map(({ uses }) => uses?.split("@")[0]);
      expect(used).not.toContain("actions/checkout");
      for (const { run = "" } of job.steps ?? []) expect(run).not.toMatch(/npx|npm (ci|install|exec|run)|curl|docker/);
    }
  });

  test("publish the package and the image with a signed statement of their origin", () => {
    const run = steps.map((step) => step.run ?? "").join("\n");
    expect(run).toContain("npm publish --provenance ");
    const attested = steps.filter(({ uses }) => uses?.startsWith("actions/attest@")).map((step) => step.with ?? {});
    expect(attested.map((inputs) => inputs["subject-path"] ?? inputs["push-to-registry"])).toEqual([
      "release/*.tgz",
      "release/*.tgz",
      true,
    ]);
  });
});
