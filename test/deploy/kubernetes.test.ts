import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { StatefulSet } from "kubernetes-types/apps/v1.js";
import type { HorizontalPodAutoscaler } from "kubernetes-types/autoscaling/v2.js";
import type { Service } from "kubernetes-types/core/v1.js";
import type { NetworkPolicy } from "kubernetes-types/networking/v1.js";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { ROOT } from "../support/documents.ts";

const FOLDER = join(ROOT, "deploy", "kubernetes");
/** Modules of kubernetes-types by API group. */
const MODULES: Record<string, string> = { v1: "core/v1" };

interface Kustomization {
  resources: string[];
  configMapGenerator: { name: string; files: string[] }[];
  images: { newTag: string }[];
}
interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
}

const kustomization: Kustomization = parse(read("kustomization.yaml"));
const manifests = kustomization.resources.flatMap((file) =>
  parseAllDocuments(read(file)).map((document) => document.toJS() as Manifest),
);

describe("the Kubernetes manifests", () => {
  test("have only the keys and the types of Kubernetes' API", () => {
    const folder = mkdtempSync(join(ROOT, "node_modules", ".kubernetes-"));
    try {
      const statements = manifests.map((manifest, index) => {
        const module = MODULES[manifest.apiVersion] ?? manifest.apiVersion.replace(/\.k8s\.io/, "");
        const type = `import("kubernetes-types/${module}.js").${manifest.kind}`;
        return `export const manifest${index}: ${type} = ${JSON.stringify(manifest, null, 2)};`;
      });
      const file = join(folder, "manifests.ts");
      writeFileSync(file, statements.join("\n"));
      const compiler = join(ROOT, "node_modules", "typescript", "bin", "tsc");
      const options = ["--noEmit", "--ignoreConfig", "--strict", "--skipLibCheck", "--module", "nodenext"];
      execFileSync(process.execPath, [compiler, ...options, file], { encoding: "utf8", cwd: ROOT });
    } catch (error) {
      expect((error as { stdout?: string }).stdout ?? error).toBe("");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("use the version of package.json", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(kustomization.images.map(({ newTag }) => newTag)).toEqual([version]);
  });

  test("give a pod more time to stop than the service may take", () => {
    const { server } = parse(read("tollgate.yaml"));
    const grace = podOf().terminationGracePeriodSeconds ?? 0;
    expect(grace).toBeGreaterThanOrEqual(server.drainDelaySeconds + server.drainSeconds + 10);
  });

  test("let nothing of a pod be written but its data and its memory", () => {
    const { containers, securityContext, volumes } = podOf();
    expect(securityContext?.runAsNonRoot).toBe(true);
    for (const container of containers) {
      expect(container.securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
    }
    const mounts = containers.flatMap(({ volumeMounts }) => volumeMounts ?? []);
    const written = mounts.filter(({ readOnly }) => readOnly !== true).map(({ name }) => name);
    expect(written).toEqual(["data", "temporary"]);
    expect(volumes?.find(({ name }) => name === "temporary")?.emptyDir?.medium).toBe("Memory");
  });

  test("name the same ports, labels and objects everywhere", () => {
    const [container] = podOf().containers;
    const ports = new Map(container?.ports?.map(({ name, containerPort }) => [name, containerPort]));
    const { metrics } = parse(read("tollgate.yaml"));
    expect(ports).toEqual(
      new Map([
        ["http", 8484],
        ["metrics", metrics.port],
      ]),
    );
    for (const service of all<Service>("Service")) {
      for (const { targetPort } of service.spec?.ports ?? []) expect([...ports.keys()]).toContain(targetPort);
    }
    const policy = one<NetworkPolicy>("NetworkPolicy").spec;
    const admitted = policy?.ingress?.flatMap((rule) => rule.ports?.map(({ port }) => port));
    expect(admitted).toEqual([...ports.keys()]);
    expect(policy?.podSelector.matchLabels).toEqual(one<StatefulSet>("StatefulSet").spec?.selector.matchLabels);
    expect(one<HorizontalPodAutoscaler>("HorizontalPodAutoscaler").spec?.scaleTargetRef.name).toBe("tollgate");
    expect(all<Service>("Service").map(({ metadata }) => metadata?.name)).toContain(
      one<StatefulSet>("StatefulSet").spec?.serviceName,
    );
  });

  test("configure the service with a file that it accepts", () => {
    const words = ["src/main.ts", "config", "check", "--config", join(FOLDER, "tollgate.yaml")];
    const [name] = kustomization.configMapGenerator.map((generated) => generated.files);
    expect(name).toEqual(["tollgate.yaml"]);
    expect(execFileSync(process.execPath, words, { cwd: ROOT, encoding: "utf8" })).toContain(
      "The configuration is valid",
    );
  });
});

function read(file: string): string {
  return readFileSync(join(FOLDER, file), "utf8");
}

function all<T>(kind: string): T[] {
  return manifests.filter((manifest) => manifest.kind === kind) as T[];
}

function one<T>(kind: string): T {
  const found = all<T>(kind);
  expect(found).toHaveLength(1);
  return found[0] as T;
}

function podOf() {
  const pod = one<StatefulSet>("StatefulSet").spec?.template.spec;
  if (pod === undefined) throw new Error("The StatefulSet has no pod");
  return pod;
}
