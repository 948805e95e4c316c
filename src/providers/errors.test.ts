import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createScrub } from "./errors.ts";

const scrub = createScrub(["the-provider-key", "models.corner.example"]);

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

test.each(["a", ":", "-", ".", "/a", "a.", "a:", "0:", "a-", "*", "A ", "a@", "account ", "a1-"])(
  "A text of many '%s' is scrubbed in linear time.",
  (text) => {
    // Each rule looks at one place once or twice: what takes longer than the test's own time limit would stop the service.
    for (let count = 0; count < 20; count += 1) scrub(text.repeat(2_000));
    expect(scrub(text.repeat(100_000)).length).toBeLessThanOrEqual(300);
  },
);
