import type { ChatCompletionRequest, Tool } from "../chat/request.ts";
import type { ValidationIssue } from "../validation.ts";
import type { ResponsesRequest, ResponsesTool } from "./request.ts";

/** Parameters of the function that stands for a custom tool: its input is free text. */
const CUSTOM_PARAMETERS = {
  type: "object",
  properties: { input: { type: "string" } },
  required: ["input"],
  additionalProperties: false,
};

/** Converts the tools and their choice to the internal form, or returns the issue of a choice that does not fit. */
export function toChatTools({
  tools = [],
  tool_choice: choice,
}: Pick<ResponsesRequest, "tools" | "tool_choice">):
  | Pick<ChatCompletionRequest, "tools" | "tool_choice">
  | { issue: ValidationIssue } {
  const all = tools.length === 0 ? {} : { tools: tools.map(toChatTool) };
  if (choice === undefined || choice === "none" || choice === "auto")
    return { ...all, ...(choice && { tool_choice: choice }) };
  if (tools.length === 0) {
    const message = "Invalid 'tool_choice': it is only allowed when 'tools' are specified.";
    return { issue: { code: "invalid_value", param: "tool_choice", message } };
  }
  if (choice === "required") return { ...all, tool_choice: choice };
  const wanted = choice.type === "allowed_tools" ? choice.tools : [choice];
  const missing = wanted.findIndex(({ type, name }) => !tools.some((tool) => tool.type === type && tool.name === name));
  if (missing >= 0 || wanted.length === 0) {
    const param =
      choice.type === "allowed_tools" ? `tool_choice.tools[${Math.max(missing, 0)}].name` : "tool_choice.name";
    const message = `Invalid '${param}': 'tools' has no tool of this type with this name.`;
    return { issue: { code: "invalid_value", param, message } };
  }
  if (choice.type !== "allowed_tools") {
    return { ...all, tool_choice: { type: "function", function: { name: choice.name } } };
  }
  const names = new Set(wanted.map(({ name }) => name));
  return { tools: tools.filter(({ name }) => names.has(name)).map(toChatTool), tool_choice: choice.mode };
}

function toChatTool(tool: ResponsesTool): Tool {
  const { name, description } = tool;
  if (tool.type === "function") {
    const { parameters, strict } = tool;
    return {
      type: "function",
      function: {
        name,
        ...(description !== undefined && { description }),
        ...(parameters && { parameters }),
        ...(strict !== undefined && { strict }),
      },
    };
  }
  const grammar =
    tool.format?.type === "grammar"
      ? `The input must match this ${tool.format.syntax} grammar:\n${tool.format.definition}`
      : undefined;
  const told = [description, grammar].filter((text) => text !== undefined).join("\n\n");
  return { type: "function", function: { name, ...(told && { description: told }), parameters: CUSTOM_PARAMETERS } };
}

/** Converts tools of the internal form back: a function whose parameters are those of a custom tool is one. */
export function toResponsesTools(tools: readonly Tool[] = []): ResponsesTool[] {
  return tools.map(({ function: { name, description, parameters, strict } }) => {
    const told = { name, ...(description !== undefined && { description }) };
    if (JSON.stringify(parameters) === JSON.stringify(CUSTOM_PARAMETERS)) return { type: "custom", ...told };
    return { type: "function", ...told, ...(parameters && { parameters }), ...(strict !== undefined && { strict }) };
  });
}

/** Returns the names of the custom tools of a request. */
export function customToolNames(tools: readonly ResponsesTool[] = []): ReadonlySet<string> {
  return new Set(tools.filter(({ type }) => type === "custom").map(({ name }) => name));
}

/** Writes the input of a custom tool as the arguments of the function that stands for it. */
export function toCustomArguments(input: string): string {
  return JSON.stringify({ input });
}

/** Reads the input of a custom tool from the arguments of a call; arguments in another form are the input themselves. */
export function customInputOf(text: string): string {
  try {
    const given = JSON.parse(text) as { input?: unknown } | null;
    return typeof given?.input === "string" ? given.input : text;
  } catch {
    return text;
  }
}
