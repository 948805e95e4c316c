import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type CallBody, curlOf, pythonOf, typescriptOf } from "../../console/src/snippets/snippets.ts";
import { codeOnWire, WIRES } from "../../console/src/snippets/wires.ts";
import { ROOT } from "../support/documents.ts";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  startService,
} from "../support/service.ts";

const run = promisify(execFile);

/** Text that is difficult to quote in shells and programs. */
const HARD_TO_QUOTE = `It's "quoted", \\ $HOME \`id\` $(id) %s !! {x}\n\t</script> ''' """ # — ü 🦉`;
const body: CallBody = {
  model: "sandbox/echo",
  messages: [{ role: "user", content: HARD_TO_QUOTE }],
  instructions: 'Don\'t "shout"',
  temperature: 0,
  max_tokens: 200,
};

let service: RunningService;
let organization: Organization;
let folder: string;
beforeAll(async () => {
  service = await startService();
  organization = await makeOrganization(service, "10");
  folder = mkdtempSync(join(tmpdir(), "tollgate-snippets-"));
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await service?.end();
});

const environment = () => ({ PATH: process.env.PATH, TOLLGATE_TOKEN: organization.token });
const callWith = (more: Partial<CallBody> = {}) => ({ baseUrl: service.baseUrl, body: { ...body, ...more } });

describe("the curl command", () => {
  test("The curl command sends the request of the playground.", async () => {
    const { stdout } = await run("sh", ["-c", curlOf(callWith())], { env: environment() });
    expect(JSON.parse(stdout).choices[0].message.content).toBe(HARD_TO_QUOTE);
  });

  test("The curl command streams.", async () => {
    const { stdout } = await run("sh", ["-c", curlOf(callWith({ stream: true }))], { env: environment() });
    expect(eventsOf(stdout).at(-1)).toBe("[DONE]");
  });

  test("The curl command can include a token.", async () => {
    const command = curlOf({ ...callWith(), token: organization.token });
    const { stdout } = await run("sh", ["-c", command], { env: { PATH: process.env.PATH } });
    expect(JSON.parse(stdout).object).toBe("chat.completion");
  });
});

/** A conversation with a tool and its result. */
const CONVERSATION: CallBody = {
  model: "sandbox/echo",
  messages: [
    { role: "user", content: "weather" },
    {
      role: "assistant",
      content: "",
      tool_calls: [{ id: "call_sandbox_1", type: "function", function: { name: "weather", arguments: "{}" } }],
    },
    { role: "tool", content: "rain", tool_call_id: "call_sandbox_1" },
  ],
  instructions: "Be brief",
  temperature: 0,
  max_tokens: 200,
  tools: [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }],
};
const STRUCTURED: CallBody = {
  model: "sandbox/echo",
  messages: [{ role: "user", content: HARD_TO_QUOTE }],
  response_format: {
    type: "json_schema",
    json_schema: { name: "answer", schema: { type: "object", properties: { city: { type: "boolean" } } } },
  },
};

describe.each(WIRES)("the code for %s", (wire) => {
  const reader = () => ({ root: service.url });

  test.each([
    ["a conversation with tools", CONVERSATION],
    ["a JSON schema", STRUCTURED],
    ["a text that is hard to quote", { model: "sandbox/echo", messages: body.messages }],
  ])("The curl command sends %s.", async (_, request) => {
    const { curl } = codeOnWire(wire, reader(), request);
    const { stdout } = await run("sh", ["-c", curl], { env: environment() });
    expect(JSON.parse(stdout).error ?? null).toBeNull();
    expect(stdout).toMatch(/"(output|content|candidates)":/);
  });

  // The package of Gemini is not installed here.
  test.skipIf(wire === "gemini")("The TypeScript program prints the answer.", async () => {
    const request = { model: "sandbox/echo", messages: [{ role: "user", content: "hello owl" }] };
    const words = ["--input-type=module-typescript", "--eval", codeOnWire(wire, reader(), request).typescript];
    const { stdout } = await run(process.execPath, words, { cwd: ROOT, env: environment() });
    expect(stdout).toMatch(wire === "messages" ? /hello owl/ : /hello owl|\[Object\]|\[Array\]/);
  });

  test.skipIf(spawnSync("python3", ["--version"]).status !== 0)("The Python program is valid.", async () => {
    for (const request of [CONVERSATION, STRUCTURED]) {
      const { python } = codeOnWire(wire, reader(), request);
      const check =
        "import ast, sys; tree = ast.parse(sys.argv[1]); print(sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}))";
      const { stdout } = await run("python3", ["-c", check, python]);
      expect(stdout).not.toMatch(/'(true|false|null)'/);
    }
  });
});

describe("the TypeScript program", () => {
  test.each([true, false])("The TypeScript program prints the answer (streamed: %s).", async (stream) => {
    const words = ["--input-type=module-typescript", "--eval", typescriptOf(callWith({ stream }))];
    const { stdout } = await run(process.execPath, words, { cwd: ROOT, env: environment() });
    expect(stdout.replace(/\n$/, "")).toBe(HARD_TO_QUOTE);
  });
});

/** Replaces the package `openai`: prints the arguments of the call. */
const RECORDER = `
import json
class OpenAI:
    def __init__(self, **client):
        self.client = client
        self.chat = self.completions = self
    def create(self, **call):
        print(json.dumps([self.client, call]))
        raise SystemExit(0)
`;

const hasPython = spawnSync("python3", ["--version"]).status === 0;

describe.skipIf(!hasPython)("the Python program", () => {
  test.each([true, false])("The Python program calls the client with the request (streamed: %s).", async (stream) => {
    writeFileSync(join(folder, "openai.py"), RECORDER);
    const env = { ...environment(), PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: "1" };
    const { stdout } = await run("python3", ["-c", pythonOf(callWith({ stream }))], { env });
    const { instructions, ...known } = body;
    expect(JSON.parse(stdout)).toEqual([
      { base_url: service.baseUrl, api_key: organization.token },
      { ...known, stream, extra_body: { instructions } },
    ]);
  });
});
