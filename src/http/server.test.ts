import { describe, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { startTestServer } from "../../test/support/server.ts";
import type { ServerOptions } from "./server.ts";

/** Sends each value of a header to a server, and returns the warnings that it logs. */
async function warningsOf(
  trustProxy: ServerOptions["trustProxy"],
  values: (string | undefined)[],
  name = "x-forwarded-for",
) {
  const log = keepLog();
  const { url, server } = await startTestServer({ trustProxy, log });
  try {
    for (const value of values) {
      await (await fetch(`${url}/healthz`, { headers: value === undefined ? {} : { [name]: value } })).text();
    }
  } finally {
    await server.close({ delayMs: 0, drainMs: 1000 });
  }
  return log.lines.filter(({ level }) => level === "warn");
}

describe("a proxy in front of the service", () => {
  test.each([
    ["without server.trustProxy", false],
    ["with the address of another proxy in server.trustProxy", "192.0.2.1"],
  ] as const)("%s, the first forwarded header is warned of once, with the sender's address", async (_, trustProxy) => {
    const warnings = await warningsOf(trustProxy, [undefined, "198.51.100.1", "198.51.100.2"]);
    expect(warnings).toEqual([
      {
        level: "warn",
        fields: { address: "127.0.0.1" },
        message: expect.stringMatching(
          /^X-Forwarded-For is ignored, because server\.trustProxy does not name its sender/,
        ),
      },
    ]);
  });

  test.each(["X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Forwarded"])(
    "without server.trustProxy, the first %s is warned of once",
    async (name) => {
      const message = expect.stringMatching(new RegExp(`^${name} is ignored, because server\\.trustProxy`));
      expect(await warningsOf(false, ["https", "https"], name)).toMatchObject([{ message }]);
      expect(await warningsOf("127.0.0.1", ["https"], name)).toEqual([]);
    },
  );

  test.each([["127.0.0.1"], [1]] as const)("that server.trustProxy names (%s) is not warned of", async (trustProxy) => {
    expect(await warningsOf(trustProxy, [undefined, "198.51.100.1", "198.51.100.2"])).toEqual([]);
  });
});
