/**
 * `npm run release -- --out FOLDER --repository URL`: makes the files of a release in a new folder: the packed package, a
 * CycloneDX list of everything in it (`sbom.cdx.json`), an unsigned SLSA statement of how it was made (`provenance.json`) and `SHA256SUMS`.
 * Refuses changes that are not committed, a commit without the tag of its version, a changelog without the version, and a base
 * image without a digest; `--draft` makes the files all the same. Prints one JSON document: `{ folder, files }`. `.github/workflows/release.yml`
 * calls it, signs what it made and publishes it.
 */
import { execFileSync } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { PACKAGES as BUNDLED_IN_SERVICE } from "./bundle.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

interface Sbom {
  components: { "bom-ref": string; name: string; properties?: { name: string }[] }[];
  dependencies: { ref: string; dependsOn?: string[] }[];
}

const { values } = parseArgs({
  options: { out: { type: "string" }, repository: { type: "string" }, draft: { type: "boolean", default: false } },
});
if (values.out === undefined || values.repository === undefined) {
  throw new Error("Two options are needed: --out FOLDER, to be created, and --repository URL, where the source is");
}
const folder = resolve(values.out);
const startedOn = new Date().toISOString();
const version: string = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).version;
const commit = git("rev-parse", "HEAD");
if (!values.draft) expectReleasable();
mkdirSync(folder);
execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: root, stdio: ["ignore", 2, 2] });
write("sbom.cdx.json", describeContents());
const subjects = readdirSync(folder).map((name) => ({ name, digest: { sha256: sha256(name) } }));
write("provenance.json", describeOrigin(subjects));
const sums = readdirSync(folder).map((name) => `${sha256(name)}  ${name}\n`);
writeFileSync(join(folder, "SHA256SUMS"), sums.join(""));
console.log(JSON.stringify({ folder, files: readdirSync(folder) }));

function expectReleasable(): void {
  const changes = git("status", "--porcelain");
  if (changes !== "") throw new Error(`A release is made of what is committed. Not committed:\n${changes}`);
  const tags = git("tag", "--points-at", "HEAD").split("\n");
  if (!tags.includes(`v${version}`)) throw new Error(`The commit has no tag v${version}, the version of package.json`);
  const isDescribed = readFileSync(join(root, "CHANGELOG.md"), "utf8").includes(`\n## [${version}]`);
  if (!isDescribed) throw new Error(`CHANGELOG.md has no heading "## [${version}]"`);
  const dockerfile = readFileSync(join(root, "deploy", "Dockerfile"), "utf8");
  const image = /^ARG NODE_IMAGE=(\S+)$/m.exec(dockerfile)?.[1] ?? "";
  if (/@sha256:[0-9a-f]{64}$/.test(image)) return;
  const remedy = `add the one that \`docker buildx imagetools inspect ${image}\` prints, as ${image}@sha256:…`;
  throw new Error(`NODE_IMAGE in deploy/Dockerfile has no digest: ${remedy}`);
}

/** Returns npm's list of packages without those that only the development needs. What is bundled stays in it. */
function describeContents(): Sbom {
  const words = ["sbom", "--sbom-format", "cyclonedx", "--package-lock-only"];
  const text = execFileSync("npm", words, { cwd: root, encoding: "utf8", maxBuffer: 2 ** 26 });
  const all: Sbom = JSON.parse(text);
  const needs = new Map(all.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn ?? []]));
  const kept = new Set(all.components.filter((one) => !isForDevelopment(one)).map((one) => one["bom-ref"]));
  const bundled = new Set([...Object.keys(BUNDLED_IN_SERVICE), ...packagesOfConsole()]);
  const pending = all.components.filter(({ name }) => bundled.has(name)).map((one) => one["bom-ref"]);
  for (let ref = pending.pop(); ref !== undefined; ref = pending.pop()) {
    if (kept.has(ref)) continue;
    kept.add(ref);
    pending.push(...(needs.get(ref) ?? []));
  }
  const own = `tollgate@${version}`;
  return {
    ...all,
    components: all.components.filter((one) => kept.has(one["bom-ref"])),
    dependencies: all.dependencies
      .filter(({ ref }) => ref === own || kept.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: (dependsOn ?? []).filter((one) => kept.has(one)) })),
  };
}

function isForDevelopment({ properties }: Sbom["components"][number]): boolean {
  return properties?.some(({ name }) => name === "cdx:npm:package:development") ?? false;
}

/** Returns the names of the packages that the console imports; the build bundles them into its files. */
function packagesOfConsole(): Set<string> {
  const source = join(root, "console", "src");
  const paths = readdirSync(source, { recursive: true, encoding: "utf8" });
  const used = paths.filter((path) => /(?<!\.test)\.(tsx?|css)$/.test(path));
  const texts = used.map((path) => readFileSync(join(source, path), "utf8"));
  const imported = texts.flatMap((text) => [...text.matchAll(/(?:from "|import "|node_modules\/)([^."][^"]*)"/g)]);
  return new Set(imported.map(([, path]) => /^(@[^/]+\/)?[^/]+/.exec(path as string)?.[0] as string));
}

/** Returns an in-toto statement with SLSA's provenance 1.0: https://slsa.dev/spec/v1.0/provenance */
function describeOrigin(subject: { name: string; digest: { sha256: string } }[]) {
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject,
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: `${values.repository}/blob/main/scripts/release.ts`,
        externalParameters: { version, draft: values.draft },
        internalParameters: { node: process.versions.node },
        resolvedDependencies: [
          { uri: `git+${values.repository}`, digest: { gitCommit: commit } },
          { uri: "package-lock.json", digest: { sha256: hash(readFileSync(join(root, "package-lock.json"))) } },
        ],
      },
      runDetails: {
        builder: { id: `${values.repository}/blob/main/.github/workflows/release.yml` },
        metadata: { invocationId: randomUUID(), startedOn, finishedOn: new Date().toISOString() },
      },
    },
  };
}

function write(name: string, document: object): void {
  writeFileSync(join(folder, name), `${JSON.stringify(document, null, 2)}\n`);
}

function sha256(name: string): string {
  return hash(readFileSync(join(folder, name)));
}

function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function git(...words: string[]): string {
  return execFileSync("git", words, { cwd: root, encoding: "utf8" }).trim();
}
