import { choiceWithoutTools } from "../chat/decode.ts";
import { type ChatCompletionRequest, TOOLS_MAX, type Tool } from "../chat/request.ts";
import { detailsOf, parseJson, pick, textOf } from "../json.ts";
import { invalid, refuse } from "../validation.ts";
import { type ResponsesRequest, type ResponsesTool, WEB_SEARCHES } from "./request.ts";
import { functionOf } from "./typed-tools.ts";

/** Parameters of the function that stands for a custom tool: its input is free text. */
const CUSTOM_PARAMETERS = {
  type: "object",
  properties: { input: { type: "string" } },
  required: ["input"],
  additionalProperties: false,
};

/** OpenAI's limit of the name of a function, which most providers have too. */
const NAME_CHARACTERS_MAX = 64;

type SearchType = (typeof WEB_SEARCHES)[number];
type ClientTool = Exclude<ResponsesTool, { type: "namespace" | SearchType }>;

/** True for the type of a search that the upstream runs. */
export function isSearch(type: string): type is SearchType {
  return (WEB_SEARCHES as readonly string[]).includes(type);
}

/** The tool that a name of the internal form stands for. */
export interface CalledTool {
  type: ClientTool["type"];
  name: string;
  namespace?: string;
}

interface NamedTool extends CalledTool {
  internalName: string;
  tool: Tool;
}

/** Returns the name of a tool in the internal form, which has no namespaces. */
export function internalNameOf({ name, namespace }: Pick<CalledTool, "name" | "namespace">): string {
  if (namespace === undefined) return name;
  const joined = `${namespace}${namespace.endsWith("_") ? "" : "__"}${name}`;
  // The end has the tool's own name.
  return joined.slice(-NAME_CHARACTERS_MAX);
}

/** Returns the tools of a request: those of `tools`, and those that items of its input add. */
export function namedTools({ tools = [], input }: Pick<ResponsesRequest, "tools" | "input">): NamedTool[] {
  const items = typeof input === "string" ? [] : input;
  const added = items.flatMap((item) => (item.type === "additional_tools" ? item.tools : []));
  const named = [...tools, ...added].flatMap(toNamedTools);
  const names = new Set(named.map(({ internalName }) => internalName));
  const found = items.flatMap((item) => (item.type === "tool_search_output" ? item.tools : []));
  for (const tool of found.flatMap(toNamedTools)) {
    // Several searches may have found it.
    if (names.has(tool.internalName)) continue;
    names.add(tool.internalName);
    named.push(tool);
  }
  return named;
}

function toNamedTools(tool: ResponsesTool): NamedTool[] {
  if (tool.type !== "namespace") {
    return isSearch(tool.type)
      ? []
      : [toNamedTool(tool as ClientTool, "description" in tool ? [tool.description] : [])];
  }
  return tool.tools.map((inner, index) => {
    // Once for all tools of the namespace, as the model would read it.
    const told = index === 0 ? [tool.description, inner.description] : [inner.description];
    return toNamedTool(inner, told, tool.name);
  });
}

function toNamedTool(tool: ClientTool, told: readonly (string | undefined)[], namespace?: string): NamedTool {
  const called = { type: tool.type, name: "name" in tool ? tool.name : tool.type };
  const origin = { ...called, ...(namespace !== undefined && { namespace }) };
  const internalName = internalNameOf(origin);
  return { ...origin, internalName, tool: toChatTool(tool, internalName, told) };
}

/** Returns the tools whose calls are not those of a function of the same name, by their names in the internal form. */
export function calledTools(tools: readonly NamedTool[]): ReadonlyMap<string, CalledTool> {
  const others = tools.filter(({ type, namespace }) => type !== "function" || namespace !== undefined);
  return new Map(others.map(({ internalName, tool: _tool, ...called }) => [internalName, called]));
}

/** Converts the tools and their choice to the internal form. Throws InvalidRequestError for a choice that does not fit. */
export function toChatTools(
  tools: readonly NamedTool[],
  choice: ResponsesRequest["tool_choice"],
): Pick<ChatCompletionRequest, "tools" | "tool_choice"> {
  if (tools.length > TOOLS_MAX) {
    const message = `Invalid 'tools': too many tools. Expected at most ${TOOLS_MAX} with those of namespaces, but got ${tools.length}.`;
    refuse({ code: "body_too_large", param: "tools", message });
  }
  const all = tools.length === 0 ? {} : { tools: tools.map(({ tool }) => tool) };
  if (choice === undefined || choice === "none" || choice === "auto") return { ...all, tool_choice: choice };
  // Only upstreams that search themselves receive it, on this wire.
  if (typeof choice === "object" && isSearch(choice.type)) return all;
  if (tools.length === 0) refuse(choiceWithoutTools());
  if (choice === "required") return { ...all, tool_choice: choice };
  const wanted = choice.type === "allowed_tools" ? choice.tools : [choice];
  const nameOf = (one: { type: string; name?: string }) => one.name ?? one.type;
  const isTool = (tool: NamedTool, type: string, name: string) => tool.type === type && tool.internalName === name;
  const missing = wanted.findIndex((one) => !tools.some((tool) => isTool(tool, one.type, nameOf(one))));
  if (missing >= 0 || wanted.length === 0) {
    const param =
      choice.type === "allowed_tools" ? `tool_choice.tools[${Math.max(missing, 0)}].name` : "tool_choice.name";
    refuse(invalid(param, "'tools' has no tool of this type with this name"));
  }
  if (choice.type !== "allowed_tools") {
    return { ...all, tool_choice: { type: "function", function: { name: nameOf(choice) } } };
  }
  const names = new Set(wanted.map(nameOf));
  const allowed = tools.filter(({ internalName }) => names.has(internalName));
  return { tools: allowed.map(({ tool }) => tool), tool_choice: choice.mode };
}

function toChatTool(tool: ClientTool, name: string, told: readonly (string | undefined)[]): Tool {
  switch (tool.type) {
    case "function":
    case "tool_search": {
      const given = pick({ strict: undefined, ...tool }, ["parameters", "strict"]);
      return { type: "function", function: { name, description: joined(told), ...given } };
    }
    case "custom": {
      const { format } = tool;
      const grammar =
        format?.type === "grammar"
          ? `The input must match this ${format.syntax} grammar:\n${format.definition}`
          : undefined;
      const description = joined([...told, grammar]) || undefined;
      return { type: "function", function: { name, description, parameters: CUSTOM_PARAMETERS } };
    }
    default:
      return { type: "function", function: { name, ...functionOf(tool) } };
  }
}

function joined(texts: readonly (string | undefined)[]): string | undefined {
  const stated = texts.filter((text) => text !== undefined);
  return stated.length === 0 ? undefined : stated.join("\n\n");
}

/** Reads the input of a custom tool from the arguments of a call; arguments in another form are the input themselves. */
export function customInputOf(text: string): string {
  return textOf(detailsOf(parseJson(text)).input) ?? text;
}
