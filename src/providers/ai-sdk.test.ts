import { expect, test } from "vitest";
import { settingsOf } from "../../test/support/wire.ts";
import { anthropic } from "./ai-sdk/wires/anthropic.ts";
import { aiSdk } from "./ai-sdk.ts";
import { createProvider } from "./index.ts";
import type { ProviderSettings } from "./settings.ts";

const of = (kind: string, fields: Partial<ProviderSettings>) => () =>
  createProvider({ ...settingsOf(""), id: "x", kind, baseUrl: null, ...fields }, {});
const AMAZON = { region: "eu-central-1", accessKeyId: "a", secretAccessKey: "b" };

test.each([
  ["anthropic", {}, "the kind anthropic needs apiKey"],
  ["google", { apiKey: "k", region: "eu" }, "the kind google takes no region; its keys are: apiKey, baseUrl"],
  ["google-vertex", { project: "p" }, "the kind google-vertex needs location"],
  [
    "google-vertex",
    { apiKey: "k", project: "p" },
    "the kind google-vertex takes apiKey, or project and location, not both",
  ],
  ["bedrock", { region: "eu-central-1" }, "the kind bedrock needs accessKeyId and secretAccessKey"],
  [
    "bedrock",
    { apiKey: "k", ...AMAZON },
    "the kind bedrock takes apiKey, or accessKeyId and secretAccessKey, not both",
  ],
  ["bedrock", { apiKey: "k" }, "the kind bedrock needs region"],
  ["azure", { apiKey: "k" }, "the kind azure needs resourceName or baseUrl"],
  ["azure", { resourceName: "r" }, "the kind azure needs apiKey"],
  ["openai-compatible", { project: "p" }, "the kind openai-compatible takes no project; its keys are: apiKey, baseUrl"],
  ["sandbox", { apiKey: "k" }, "the kind sandbox takes no apiKey; its keys are: none of its own"],
] as const)("%s %j: one line says what is wrong", (kind, fields, line) => {
  expect(of(kind, fields)).toThrow(`providers 'x': ${line}`);
});

test.each([
  ["google-vertex", { project: "p", location: "global" }],
  ["google-vertex", { apiKey: "k" }],
  ["bedrock", AMAZON],
  ["bedrock", { apiKey: "k", region: "eu-central-1" }],
  ["azure", { apiKey: "k", resourceName: "r" }],
] as const)("%s %j is right", async (kind, fields) => {
  const provider = of(kind, fields)();
  expect(provider.id).toBe("x");
  await provider.close();
});

test("The error for a missing package contains the command that installs it.", () => {
  const create = aiSdk({ ...anthropic, packages: ["@ai-sdk/nobody"] });
  expect(() => create(settingsOf("", { kind: "anthropic", apiKey: "k" }), {})).toThrow(
    /^providers 'upstream': the kind anthropic needs the package @ai-sdk\/nobody, which is not installed: node /,
  );
});
