/** Anthropic's Agent SDK, which runs Claude Code, with the words of the command line as its prompt. */
import { query } from "@anthropic-ai/claude-agent-sdk";

const options = { permissionMode: "acceptEdits", allowedTools: ["Bash"] };
for await (const message of query({ prompt: process.argv[2], options })) {
  if (message.type === "result") console.log(message.result ?? message.errors);
}
