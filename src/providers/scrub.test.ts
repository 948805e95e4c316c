import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { settingsOf } from "../../test/support/wire.ts";
import { createScrub, privateTextsOf } from "./scrub.ts";

const scrub = createScrub({ secrets: ["the-provider-key"], names: ["models.corner.example"] });

describe("Private text is removed:", () => {
  test.each([
    ["the provider's own key", "bad key the-provider-key.", "the-provider-key"],
    ["the provider's own host", "at models.corner.example now", "models.corner.example"],
    ["a key", "Incorrect API key provided: sk-proj-AbC123xyz", "AbC123xyz"],
    ["a masked key", "Incorrect API key provided: sk-pr***********xYz9.", "xYz9"],
    ["a key of Google's", "key AIzaSyA1234567890abcdefghij is invalid", "AIzaSy"],
    ["a bearer token", "Bearer abc.def-123456 refused", "abc.def"],
    ["a long token", "token a1b2c3d4e5f6a7b8c9d0e1f2a3b4", "a1b2c3"],
    ["an address of the web", "see https://platform.example.com/account?id=7 for more", "platform"],
    ["an address with a scheme of its own", "postgres://me:secret@db/keys", "secret"],
    ["an e-mail address", "ask jane.doe@example.com", "jane"],
    ["an IPv4 address", "from 10.1.2.3:8080", "10.1.2.3"],
    ["an IPv6 address", "from [2001:db8:1:2::5]:443", "2001"],
    ["a host and port", "worker-7:8000 refused", "worker-7"],
    ["a host", "gpu-1.cluster.internal failed", "gpu-1"],
    ["this machine", "localhost:11434 failed", "localhost"],
    ["an organization's id", "in organization org-AbCdEf123 on tokens", "org-AbCdEf123"],
    ["an organization's name in quotes", 'organization "big bank"', "big bank"],
    ["an organization's name", "Your organization Acme Corp has no access", "Acme"],
    ["a project's id", "Project `proj_a1b2c3` does not have access", "proj_a1b2c3"],
    ["an account's number", "account id: 123456789", "123456789"],
    ["a UUID", "deployment 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "3f2504e0"],
    ["a file", "/usr/lib/python3/site-packages/vllm/engine.py:120", "python3"],
    ["a file of Windows", "C:\\models\\secret\\llama.gguf", "secret"],
    ["a stack", "failed\n    at run (server.js:1)\n    at main", "server.js"],
    ["a stack of Python's", 'failed\nTraceback (most recent call last):\n  File "x.py"', "x.py"],
  ])("%s", (_name, text, secret) => {
    expect(scrub(text)).not.toContain(secret);
    expect(scrub(text)).not.toBe("");
  });
});

describe("A known secret", () => {
  const secret = fc.stringMatching(/^[\w./+=:-]{8,64}$/);
  const space = fc.constantFrom("", "", "", " ", "  ", "\n", "\t", "\u00a0", "\u200b");
  const around = fc.stringMatching(/^[ a-z,.]{0,30}$/);

  test("is removed in every part of at least 8 characters, whatever the case and the space in it.", () => {
    const part = secret.chain((text) => {
      const start = fc.nat(text.length - 8);
      return start.chain((from) =>
        fc.record({
          text: fc.constant(text),
          part: fc.integer({ min: from + 8, max: text.length }).map((to) => text.slice(from, to)),
          isUpper: fc.boolean(),
        }),
      );
    });
    fc.assert(
      fc.property(
        part,
        fc.array(space, { minLength: 64, maxLength: 64 }),
        around,
        around,
        (one, spaces, head, tail) => {
          const spaced = [...one.part].map((character, index) => character + spaces[index]).join("");
          const quoted = `${head}${one.isUpper ? spaced.toUpperCase() : spaced}${tail}`;
          const shown = createScrub({ secrets: [one.text], names: [] })(quoted);
          const ink = shown.replaceAll("[removed]", "|").replaceAll(/[\s\u200b]/g, "");
          for (let at = 0; at + 8 <= one.text.length; at += 1) {
            expect(ink.toLowerCase()).not.toContain(one.text.slice(at, at + 8).toLowerCase());
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test("of fewer than 8 characters is removed where it is whole, and a name too.", () => {
    const own = createScrub({ secrets: ["ollama"], names: ["inference.corner"] });
    expect(own("ollama refused, olla did not, at inference.corner: inference failed")).toBe(
      "[removed] refused, olla did not, at [removed]: inference failed",
    );
  });

  test("leaves the rest of the sentence readable.", () => {
    expect(scrub("The key the-provi… (ending in ovider-key) is invalid.")).toBe(
      "The key [removed]… (ending in [removed]) is invalid.",
    );
  });

  test("is every key, header, query value and login of the settings, and of the file with the service's identity.", () => {
    const file = join(mkdtempSync(join(tmpdir(), "tollgate-scrub-")), "account.json");
    const identity = {
      private_key: "-----BEGIN\nMIIEvQ",
      private_key_id: "id-of-key",
      client_secret: "gocspx",
      type: "t",
    };
    writeFileSync(file, JSON.stringify(identity));
    const settings = settingsOf("https://gpu.corner:81/v1?code=of-the-address", {
      ...{ apiKey: "of-key", accessKeyId: "of-access", secretAccessKey: "of-aws", sessionToken: "of-session" },
      ...{ headers: { "x-account": "of-header" }, credentialsFile: file, project: "of-project" },
    });
    const { secrets, names } = privateTextsOf(settings, { HTTPS_PROXY: "http://me:of-proxy@proxy:1", NO_PROXY: "x" });
    expect(secrets.toSorted()).toEqual(
      [
        ...["-----BEGIN\nMIIEvQ", "gocspx", "id-of-key", "me", "of-access", "of-aws", "of-header", "of-key"],
        ...["of-proxy", "of-session", "of-the-address"],
      ].toSorted(),
    );
    expect(names.toSorted()).toEqual(["gpu.corner", "gpu.corner:81", "of-project"]);
  });
});

describe("Helpful text is kept:", () => {
  test.each([
    "Invalid value for 'messages[0].content': expected a string, but got an integer instead.",
    "max_tokens is too large: 5000. This model supports at most 4096 completion tokens.",
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "The model `gpt-4.1-mini` does not exist or you do not have access to it.",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
    "Your organization must be verified to use this model.",
    "Invalid schema for function 'get_weather': In context=('properties', 'city'), 'type' is missing.",
    "An assistant message with 'tool_calls' must be followed by tool messages; these did not: call_1.",
  ])("%s", (text) => {
    expect(scrub(text)).toBe(text);
  });
});

test("Any text becomes one line of at most 300 characters without control characters.", () => {
  const nasty = fc.stringMatching(/^[\s\S]{0,80}$/).map((text) => text.repeat(40));
  fc.assert(
    fc.property(nasty, (text) => {
      const line = scrub(text);
      expect(line.length).toBeLessThanOrEqual(300);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: this is what must not be there
      expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
    }),
    { numRuns: 500 },
  );
});

test.each([
  "the-prov",
  " ",
  "t h e - p",
  "a",
  ":",
  "-",
  ".",
  "/a",
  "a.",
  "a:",
  "0:",
  "a-",
  "*",
  "A ",
  "a@",
  "account ",
  "a1-",
])("A text of many '%s' is scrubbed in linear time.", (text) => {
  // Each rule looks at one place once or twice: what takes longer than the test's own time limit would stop the service.
  for (let count = 0; count < 20; count += 1) scrub(text.repeat(2_000));
  expect(scrub(text.repeat(100_000)).length).toBeLessThanOrEqual(300);
});
