import { expect, test } from "vitest";
import { loadConfig } from "../config.ts";
import { createUpstreams } from "./upstreams.ts";

test("A provider that a key in the environment sets up has the default timeouts.", async () => {
  const environment = { OPENAI_API_KEY: "test" };
  const readFile = () => "";
  const config = loadConfig({ flags: {}, environment, readFile, providerKeyVariables: ["OPENAI_API_KEY"] });
  const upstreams = createUpstreams(config);
  expect(upstreams.settings).toMatchObject([
    { id: "openai", timeouts: { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 } },
  ]);
  await upstreams.close();
});
