import type { EXAMPLES } from "../../snippets/examples.ts";

/** Something to do with the API. Its examples have the same id. */
export interface Task {
  id: keyof typeof EXAMPLES;
  title: string;
  text: string;
  /** Operations of the OpenAPI document that it uses. */
  operations: string[];
}

/** Everything that people come to the reference for, in the order in which it is shown. */
export const TASKS: readonly Task[] = [
  {
    id: "chat",
    title: "Chat completions",
    text: "Send a conversation and get an answer. usage.cost is what it cost, in credits.",
    operations: ["createChatCompletion"],
  },
  {
    id: "stream",
    title: "Streaming",
    text: "Receive the answer while it is generated, as server-sent events. The last one before [DONE] has the usage.",
    operations: ["createChatCompletion"],
  },
  {
    id: "tools",
    title: "Tools",
    text: "Offer functions that the model can call. Run what it calls, and send the result as a message with the role tool.",
    operations: ["createChatCompletion"],
  },
  {
    id: "json",
    title: "Structured output",
    text: "Have the answer follow a JSON schema.",
    operations: ["createChatCompletion"],
  },
  {
    id: "responses",
    title: "Responses",
    text: "OpenAI's Responses API, for the Agents SDK, Codex and programs that use it.",
    operations: ["createResponse", "retrieveResponse", "deleteResponse", "countResponseTokens"],
  },
  {
    id: "messages",
    title: "Messages",
    text: "Anthropic's Messages API, for Claude Code and programs that use its packages. Their base URL has no /v1.",
    operations: ["createMessage", "countMessageTokens"],
  },
  {
    id: "gemini",
    title: "Gemini",
    text: "Google's Gemini API, for programs that use its packages. Their base URL has no /v1.",
    operations: ["createGeminiContent", "listGeminiModels", "retrieveGeminiModel"],
  },
  {
    id: "embeddings",
    title: "Embeddings",
    text: "Turn texts into vectors, for search and grouping.",
    operations: ["createEmbedding"],
  },
  {
    id: "images",
    title: "Images",
    text: "Generate images from a prompt. The answer has them as base64; usage.cost is what they cost, in credits.",
    operations: ["createImages"],
  },
  {
    id: "speech",
    title: "Speech",
    text: "Turn a text into audio, which arrives while it is generated.",
    operations: ["createSpeech"],
  },
  {
    id: "transcription",
    title: "Transcriptions",
    text: "Turn an audio file into text. The body is a form. usage.cost is what it cost, in credits.",
    operations: ["createTranscription"],
  },
  {
    id: "models",
    title: "Models and credits",
    text: "List the models that the token can call, and see what it may spend.",
    operations: ["listModels", "retrieveModel", "reportUsage", "showKey"],
  },
  {
    id: "retries",
    title: "Safe retries",
    text: "With an Idempotency-Key, a request that is sent again gets the first answer and is charged once.",
    operations: ["createChatCompletion", "createEmbedding"],
  },
  {
    id: "agents",
    title: "Coding agents",
    text: "Start Claude Code with a model, or save the settings of Codex as ~/.codex/config.toml.",
    operations: ["createMessage", "createResponse"],
  },
];
