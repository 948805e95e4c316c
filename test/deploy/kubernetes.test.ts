import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { StatefulSet } from "kubernetes-types/apps/v1.js";
import type { HorizontalPodAutoscaler } from "kubernetes-types/autoscaling/v2.js";
import type { Service } from "kubernetes-types/core/v1.js";
import type { Ingress, NetworkPolicy } from "kubernetes-types/networking/v1.js";
import type { PodDisruptionBudget } from "kubernetes-types/policy/v1.js";
import { describe, expect, inject, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { ROOT } from "../support/documents.ts";

const FOLDER = join(ROOT, "deploy", "kubernetes");
/** Modules of kubernetes-types by API group. */
const MODULES: Record<string, string> = { v1: "core/v1" };

interface Kustomization {
  apiVersion: string;
  resources: string[];
  configMapGenerator: { name: string; files: string[]; options: object }[];
  images: { newName: string; newTag: string }[];
}
interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec: object;
}

/** PostgreSQL's default for max_connections, and how many of them remain for its superuser and for commands. */
const POSTGRES_CONNECTIONS = 100;
const CONNECTIONS_LEFT = 15;

const kustomization: Kustomization = parse(read("kustomization.yaml"));
const manifests = kustomization.resources.flatMap(manifestsIn);
const examples = ["examples/ingress.yaml", "examples/service-monitor.yaml"].flatMap(manifestsIn);
/** The fields that the example uses of a resource that is no part of Kubernetes. */
const SERVICE_MONITOR = `{
  apiVersion: "monitoring.coreos.com/v1";
  kind: "ServiceMonitor";
  metadata: import("kubernetes-types/meta/v1.js").ObjectMeta;
  spec: {
    jobLabel: string;
    selector: import("kubernetes-types/meta/v1.js").LabelSelector;
    endpoints: {
      port: string;
      interval: string;
      authorization: { type: "Bearer"; credentials: import("kubernetes-types/core/v1.js").SecretKeySelector };
    }[];
  };
}`;

describe("the Kubernetes manifests", () => {
  test("have only the keys and the types of Kubernetes' API", () => {
    const folder = mkdtempSync(join(ROOT, "node_modules", ".kubernetes-"));
    try {
      const statements = [...manifests, ...examples].map((manifest, index) => {
        const module = MODULES[manifest.apiVersion] ?? manifest.apiVersion.replace(/\.k8s\.io/, "");
        const type = `import("kubernetes-types/${module}.js").${manifest.kind}`;
        const own = manifest.kind === "ServiceMonitor" ? SERVICE_MONITOR : type;
        return `export const manifest${index}: ${own} = ${JSON.stringify(manifest, null, 2)};`;
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
    const labels = { "app.kubernetes.io/name": "tollgate", "app.kubernetes.io/component": "service" };
    expect(one<StatefulSet>("StatefulSet").spec?.selector.matchLabels).toEqual(labels);
    expect(policy?.podSelector.matchLabels).toEqual(labels);
    expect(one<PodDisruptionBudget>("PodDisruptionBudget").spec?.selector?.matchLabels).toEqual(labels);
    for (const { spec } of all<Service>("Service")) expect(spec?.selector).toEqual(labels);
    expect(one<HorizontalPodAutoscaler>("HorizontalPodAutoscaler").spec?.scaleTargetRef.name).toBe("tollgate");
    expect(all<Service>("Service").map(({ metadata }) => metadata?.name)).toContain(
      one<StatefulSet>("StatefulSet").spec?.serviceName,
    );
  });

  test("leave the number of pods to the autoscaler, whose most pods fit into PostgreSQL's default connections", () => {
    expect(one<StatefulSet>("StatefulSet").spec).not.toHaveProperty("replicas");
    const { maxReplicas = 0 } = one<HorizontalPodAutoscaler>("HorizontalPodAutoscaler").spec ?? {};
    const sizing = readFileSync(join(ROOT, "docs", "operations.md"), "utf8");
    const connections = Number(/up to (\d+) connections for each process/.exec(sizing)?.[1]);
    expect(maxReplicas * connections).toBeLessThanOrEqual(POSTGRES_CONNECTIONS - CONNECTIONS_LEFT);
  });

  test("keep secrets out of the environment, and give the metrics a token", () => {
    const [container] = podOf().containers;
    expect(container).not.toHaveProperty("envFrom");
    expect(container?.env).toEqual([{ name: "CREDENTIALS_DIRECTORY", value: "/run/secrets/tollgate" }]);
    const mount = container?.volumeMounts?.find(({ mountPath }) => mountPath === "/run/secrets/tollgate");
    expect(podOf().volumes?.find(({ name }) => name === mount?.name)?.secret).toMatchObject({ secretName: "tollgate" });
    const { server, metrics } = parse(read("tollgate.yaml"));
    expect([server.trustProxy, metrics.token]).toEqual([1, `\${METRICS_TOKEN}`]);
    const monitor = JSON.stringify(examples.find(({ kind }) => kind === "ServiceMonitor"));
    expect(monitor).toContain('"credentials":{"name":"tollgate","key":"METRICS_TOKEN"}');
  });

  test("let the pods reach named destinations only, over IPv4 and IPv6", () => {
    const rules = one<NetworkPolicy>("NetworkPolicy").spec?.egress ?? [];
    const byPort = new Map(rules.map(({ ports, to }) => [ports?.[0]?.port, to]));
    expect([...byPort.keys()]).toEqual([53, 5432, 6379, 4318, 443]);
    for (const [port, peers] of byPort) {
      if (port === 443) continue;
      expect(peers, String(port)).toEqual([
        {
          namespaceSelector: { matchLabels: expect.any(Object) },
          podSelector: { matchLabels: expect.any(Object) },
        },
      ]);
    }
    const blocks = byPort.get(443)?.map(({ ipBlock }) => ipBlock);
    expect(blocks?.map((block) => block?.cidr)).toEqual(["0.0.0.0/0", "::/0"]);
    expect(blocks?.[0]?.except).toContain("169.254.0.0/16");
    expect(blocks?.[1]?.except).toEqual(["fc00::/7", "fe80::/10"]);
  });

  test("are what the documented folder of an operator refers to", () => {
    const page = readFileSync(join(ROOT, "docs", "deployment.md"), "utf8");
    const example = /```yml\n(apiVersion: kustomize.*?)```/s.exec(page)?.[1] ?? "";
    const { resources, images, configMapGenerator, patches, ...named } = parse(example);
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(named).toEqual({ apiVersion: kustomization.apiVersion, kind: "Kustomization", namespace: "tollgate" });
    expect(resources[0]).toMatch(new RegExp(`//deploy/kubernetes\\?ref=v${version}$`));
    expect(images[0].name).toBe(kustomization.images[0]?.newName);
    const [generated] = kustomization.configMapGenerator;
    expect(configMapGenerator).toEqual([{ ...generated, behavior: "replace" }]);
    for (const { target, patch } of patches) {
      const manifest = manifests.find(({ kind, metadata }) => kind === target.kind && metadata.name === target.name);
      for (const { path } of parse(patch)) {
        const fields: string[] = path.split("/").slice(1);
        expect(
          fields.reduce<unknown>((value, field) => (value as Manifest)?.[field as "spec"], manifest),
        ).toBeDefined();
      }
    }
  });

  test.skipIf(!inject("hasKubectl"))("are not changed by kustomize except in names, labels and the image", () => {
    const made = execFileSync("kubectl", ["kustomize", FOLDER], { encoding: "utf8" });
    const kustomized = parseAllDocuments(made).map((document) => document.toJS() as Manifest);
    const specOf = (list: Manifest[], kind: string) => list.filter((one) => one.kind === kind).map(({ spec }) => spec);
    for (const kind of ["NetworkPolicy", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"]) {
      expect(specOf(kustomized, kind)).toEqual(specOf(manifests, kind));
    }
    const [pods] = specOf(kustomized, "StatefulSet") as StatefulSet["spec"][];
    expect(pods?.template.metadata?.labels).toEqual(pods?.selector.matchLabels);
    expect(kustomized.find(({ kind }) => kind === "ConfigMap")?.metadata.name).toBe("tollgate");
  });

  test("expose the API to callers, and everything else to named networks only", () => {
    const ingresses = examples.filter(({ kind }) => kind === "Ingress") as Ingress[];
    const [api, console] = ingresses.map(({ metadata, spec }) => ({
      annotations: metadata?.annotations ?? {},
      rule: spec?.rules?.[0],
      names: [spec?.rules?.[0]?.host, ...(spec?.tls?.[0]?.hosts ?? [])],
    }));
    // Gemini's path is not below /v1: a prefix matches whole segments.
    expect(api?.rule?.http?.paths.map(({ path }) => path)).toEqual(["/v1", "/v1beta", "/v1alpha"]);
    expect(api?.annotations["nginx.ingress.kubernetes.io/proxy-next-upstream"]).toBe("error timeout");
    expect(console?.annotations).toHaveProperty("nginx.ingress.kubernetes.io/whitelist-source-range");
    const ports = all<Service>("Service").find(({ metadata }) => metadata?.name === "tollgate")?.spec?.ports;
    for (const { rule, names } of [api, console].filter((one) => one !== undefined)) {
      expect(new Set(names).size).toBe(1);
      const service = rule?.http?.paths[0]?.backend.service;
      expect([service?.name, service?.port?.name]).toEqual(["tollgate", ports?.[0]?.name]);
    }
  });

  test("configure the service with a file that it accepts", () => {
    const words = ["src/main.ts", "config", "check", "--config", join(FOLDER, "tollgate.yaml")];
    const [name] = kustomization.configMapGenerator.map((generated) => generated.files);
    expect(name).toEqual(["tollgate.yaml"]);
    const env = { ...process.env, METRICS_TOKEN: "a".repeat(64) };
    expect(execFileSync(process.execPath, words, { cwd: ROOT, encoding: "utf8", env })).toContain(
      "The configuration is valid",
    );
  });
});

function manifestsIn(file: string): Manifest[] {
  return parseAllDocuments(read(file)).map((document) => document.toJS() as Manifest);
}

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
