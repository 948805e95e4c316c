/** The coding agents that `npm run agents` tries: one row for each. */
import { readFileSync } from "node:fs";
import type { Place, Program } from "./run.ts";
import type { ScriptedCall } from "./wires.ts";

export interface Agent extends Program {
  wire: "chat completions" | "responses" | "messages" | "Gemini";
  /** True if the agent asks for more output than `completions.maxTokens` allows by default. */
  needsMaxTokens?: true;
  arguments: (place: Place, prompt: string) => string[];
  /** Calls of the agent's tools that read, edit and copy the file. */
  calls: (place: Place) => ScriptedCall[];
}

const json = (value: unknown) => JSON.stringify(value, null, 2);

/** Input of Codex's tool `apply_patch`. */
const PATCH = [
  "*** Begin Patch",
  "*** Update File: notes.txt",
  "@@",
  "-The colour of the door is red.",
  "+The colour of the door is green.",
  "*** End Patch",
].join("\n");

const CODEX: Agent = {
  name: "Codex",
  packages: { "@openai/codex": "0.171.0" },
  program: "codex",
  wire: "responses",
  // A model that Codex knows, so that it offers its custom tool apply_patch.
  model: "gpt-5.5",
  files: ({ url, model }) => ({
    ".codex/config.toml": [
      `model = "${model}"`,
      'model_provider = "tollgate"',
      "",
      "[model_providers.tollgate]",
      'name = "Tollgate"',
      `base_url = "${url}/v1"`,
      'env_key = "TOLLGATE_TOKEN"',
      'wire_api = "responses"',
    ].join("\n"),
  }),
  environment: ({ token }) => ({ TOLLGATE_TOKEN: token }),
  arguments: (_, prompt) => ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
  calls: () => [
    { tool: "exec_command", arguments: { cmd: "cat notes.txt" } },
    { tool: "apply_patch", arguments: { input: PATCH } },
    { tool: "exec_command", arguments: { cmd: "cp notes.txt copy.txt" } },
  ],
};

/** Codex gives the newest models one tool that runs scripts, in a namespace and in the input. */
const codexScripts = (): ScriptedCall[] =>
  [
    `text(await tools.apply_patch(${JSON.stringify(PATCH)}))`,
    'text(await tools.exec_command({ cmd: "cp notes.txt copy.txt" }))',
  ].map((input) => ({ tool: "functions__exec", arguments: { input } }));

const CLAUDE_CODE: Agent = {
  name: "Claude Code",
  packages: { "@anthropic-ai/claude-code": "2.1.332" },
  program: "claude",
  wire: "messages",
  environment: ({ url, token }) => ({ ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: token }),
  offline: { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" },
  arguments: (_, prompt) => ["--permission-mode", "acceptEdits", "--allowedTools", "Bash", "-p", prompt],
  calls: ({ work }) => [
    { tool: "Read", arguments: { file_path: `${work}/notes.txt` } },
    { tool: "Edit", arguments: { file_path: `${work}/notes.txt`, old_string: "red", new_string: "green" } },
    { tool: "Bash", arguments: { command: "cp notes.txt copy.txt", description: "Copies the file" } },
  ],
};

export const AGENTS: readonly Agent[] = [
  {
    name: "pi",
    packages: { "@mariozechner/pi-coding-agent": "0.73.1" },
    program: "pi",
    wire: "chat completions",
    files: ({ url, token, model }) => ({
      ".pi/agent/models.json": json({
        providers: {
          tollgate: { baseUrl: `${url}/v1`, api: "openai-completions", apiKey: token, models: [{ id: model }] },
        },
      }),
    }),
    offline: { PI_OFFLINE: "1" },
    arguments: ({ model }, prompt) => ["-p", "--provider", "tollgate", "--model", model, prompt],
    calls: ({ work }) => [
      { tool: "read", arguments: { path: `${work}/notes.txt` } },
      { tool: "edit", arguments: { path: `${work}/notes.txt`, edits: [{ oldText: "red", newText: "green" }] } },
      { tool: "bash", arguments: { command: "cp notes.txt copy.txt" } },
    ],
  },
  {
    name: "opencode",
    packages: { "opencode-ai": "1.18.33" },
    program: "opencode",
    wire: "chat completions",
    needsMaxTokens: true,
    files: ({ url, token, model }) => ({
      ".config/opencode/opencode.json": json({
        provider: {
          tollgate: {
            npm: "@ai-sdk/openai-compatible",
            options: { baseURL: `${url}/v1`, apiKey: token },
            models: { [model]: { limit: { context: 200_000, output: 32_000 } } },
          },
        },
      }),
    }),
    offline: {
      OPENCODE_DISABLE_AUTOUPDATE: "1",
      OPENCODE_DISABLE_MODELS_FETCH: "1",
      OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
    },
    arguments: ({ model }, prompt) => ["run", "--auto", "--model", `tollgate/${model}`, prompt],
    calls: ({ work }) => [
      { tool: "read", arguments: { filePath: `${work}/notes.txt` } },
      { tool: "edit", arguments: { filePath: `${work}/notes.txt`, oldString: "red", newString: "green" } },
      { tool: "bash", arguments: { command: "cp notes.txt copy.txt", description: "Copies the file" } },
    ],
  },
  {
    name: "Cline",
    packages: { cline: "3.0.65" },
    program: "cline",
    wire: "chat completions",
    setup: ({ url, token, model }) => [
      ...["auth", "openai-compatible", "--baseurl", `${url}/v1`],
      ...["--apikey", token, "--modelid", model],
    ],
    arguments: (_, prompt) => [prompt],
    calls: ({ work }) => [
      { tool: "read_files", arguments: { files: [{ path: `${work}/notes.txt` }] } },
      { tool: "editor", arguments: { path: `${work}/notes.txt`, old_text: "red", new_text: "green" } },
      { tool: "run_commands", arguments: { commands: ["cp notes.txt copy.txt"] } },
    ],
  },
  {
    name: "Continue",
    packages: { "@continuedev/cli": "1.5.47" },
    program: "cn",
    wire: "chat completions",
    files: ({ url, token, model }) => ({
      ".continue/config.yaml": json({
        name: "Tollgate",
        version: "1.0.0",
        schema: "v1",
        models: [{ name: model, provider: "openai", model, apiBase: `${url}/v1`, apiKey: token, roles: ["chat"] }],
      }),
    }),
    offline: { CONTINUE_TELEMETRY_ENABLED: "0" },
    arguments: ({ home }, prompt) => ["-p", "--auto", "--config", `${home}/.continue/config.yaml`, prompt],
    calls: ({ work }) => [
      { tool: "Read", arguments: { filepath: `${work}/notes.txt` } },
      { tool: "Edit", arguments: { file_path: `${work}/notes.txt`, old_string: "red", new_string: "green" } },
      { tool: "Bash", arguments: { command: "cp notes.txt copy.txt" } },
    ],
  },
  {
    name: "Qwen Code",
    packages: { "@qwen-code/qwen-code": "0.24.4" },
    program: "qwen",
    wire: "chat completions",
    needsMaxTokens: true,
    files: () => ({
      ".qwen/settings.json": json({
        security: { auth: { selectedType: "openai" } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false },
      }),
    }),
    environment: ({ url, token, model }) => ({
      OPENAI_BASE_URL: `${url}/v1`,
      OPENAI_API_KEY: token,
      OPENAI_MODEL: model,
    }),
    arguments: (_, prompt) => ["--yolo", "-p", prompt],
    calls: ({ work }) => [
      { tool: "read_file", arguments: { file_path: `${work}/notes.txt` } },
      { tool: "edit", arguments: { file_path: `${work}/notes.txt`, old_string: "red", new_string: "green" } },
      { tool: "run_shell_command", arguments: { command: "cp notes.txt copy.txt", is_background: false } },
    ],
  },
  {
    name: "Copilot CLI",
    packages: { "@github/copilot": "1.0.102" },
    program: "copilot",
    wire: "chat completions",
    environment: ({ url, token, model }) => ({
      COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
      COPILOT_PROVIDER_API_KEY: token,
      COPILOT_MODEL: model,
    }),
    offline: { COPILOT_OFFLINE: "true" },
    arguments: (_, prompt) => ["--allow-all-tools", "--allow-all-paths", "-p", prompt],
    calls: ({ work }) => [
      { tool: "view", arguments: { path: `${work}/notes.txt` } },
      { tool: "edit", arguments: { path: `${work}/notes.txt`, old_str: "red", new_str: "green" } },
      { tool: "bash", arguments: { command: "cp notes.txt copy.txt", description: "Copies the file" } },
    ],
  },
  CODEX,
  { ...CODEX, name: "Codex, passed on", upstream: "responses" },
  { ...CODEX, name: "Codex, other tools", model: "gpt-5.6-sol", calls: codexScripts },
  CLAUDE_CODE,
  { ...CLAUDE_CODE, name: "Claude Code, passed on", upstream: "messages" },
  {
    ...CLAUDE_CODE,
    name: "Claude Agent SDK",
    packages: { "@anthropic-ai/claude-agent-sdk": "0.3.332", zod: "4.6.7" },
    program: "node",
    files: () => ({
      "client.mjs": readFileSync(new URL("clients/claude-agent.mjs", import.meta.url), "utf8").trimEnd(),
    }),
    arguments: ({ home }, prompt) => [`${home}/client.mjs`, prompt],
  },
  {
    name: "Gemini CLI",
    packages: { "@google/gemini-cli": "0.61.0" },
    program: "gemini",
    wire: "Gemini",
    files: () => ({
      ".gemini/settings.json": json({
        security: { auth: { selectedType: "gemini-api-key" } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false, disableAutoUpdate: true },
      }),
    }),
    environment: ({ url, token }) => ({ GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: token }),
    arguments: (_, prompt) => ["--skip-trust", "--yolo", "-p", prompt],
    calls: ({ work }) => [
      { tool: "read_file", arguments: { file_path: `${work}/notes.txt` } },
      {
        tool: "replace",
        arguments: {
          file_path: `${work}/notes.txt`,
          ...{ instruction: "Make the door green.", old_string: "red", new_string: "green" },
        },
      },
      { tool: "run_shell_command", arguments: { command: "cp notes.txt copy.txt", description: "Copies the file" } },
    ],
  },
];
