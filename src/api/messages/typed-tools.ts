import { pick } from "../json.ts";
import type { MessageTool } from "./request.ts";

/**
 * Tools that Anthropic defines and the client runs (Anthropic's documentation, "Bash tool", "Text editor tool", "Memory
 * tool", "Computer use tool"). For other providers they become tools with a schema; their calls are `tool_use` blocks with the
 * same name in any case.
 */
export const TYPED_TOOL = /^((bash|text_editor|memory|computer)|(computer|browser)_toolset)_(\d{8})$/;

/** Types of the searches that Anthropic runs, of any version. */
export const WEB_SEARCH = /^web_search_\d{8}$/;

export function isWebSearch({ type }: { type?: unknown }): boolean {
  return WEB_SEARCH.test(String(type));
}

/** True for a toolset: the names of its tools are Anthropic's, and only Anthropic can take it. */
export function isToolset({ type = "" }: Pick<MessageTool, "type">): boolean {
  return type.includes("_toolset_");
}

type Definition = Required<Pick<MessageTool, "name" | "description" | "input_schema">>;

/** Returns the name, the description and the schema of a tool, also of one that Anthropic defines. */
export function definitionOf(tool: MessageTool): Definition {
  const { type = "custom", name = type, description = "", input_schema = {}, ...settings } = tool;
  const [, toolset, client, , version = ""] = TYPED_TOOL.exec(type) ?? [];
  if (toolset === undefined) return { name, description, input_schema };
  if (client === "bash") return { name, ...BASH };
  if (client === "computer") return { name, ...screenTool(settings, version) };
  if (client === "memory") return { name, ...filesTool("the files of a memory below /memories", MEMORY_COMMANDS) };
  if (client !== "text_editor") return { name, description: JSON.stringify(settings), input_schema };
  // The first versions could undo, and named the text of an insertion as that of a replacement.
  const isOld = version < "20250429";
  const commands = isOld ? [...EDITOR_COMMANDS, "undo_edit"] : EDITOR_COMMANDS;
  return { name, ...filesTool("text files", commands, isOld ? "new_str" : "insert_text") };
}

const text = { type: "string" };
const BASH = {
  description: "Runs a command in a shell that keeps its state, or restarts the shell.",
  input_schema: { type: "object", properties: { command: text, restart: { type: "boolean" } } },
};
const EDITOR_COMMANDS = ["view", "create", "str_replace", "insert"];
const MEMORY_COMMANDS = [...EDITOR_COMMANDS, "delete", "rename"];
/** The fields that a command of `filesTool` has besides its path, without those that its versions name differently. */
const FIELDS: Record<string, string> = {
  view: " (view_range)",
  create: " (file_text)",
  str_replace: " (old_str, new_str)",
  rename: " (old_path, new_path)",
};
const PROPERTIES = {
  path: { ...text, description: "For every command except rename." },
  view_range: {
    type: "array",
    items: { type: "integer" },
    description: "First and last line, from 1 on; -1 is the end.",
  },
  file_text: { ...text, description: "The content of the new file." },
  old_str: { ...text, description: "A text that occurs exactly once." },
  new_str: text,
  insert_line: { type: "integer", description: "The line after which to insert; 0 is the beginning." },
  insert_text: text,
  old_path: text,
  new_path: text,
};

function filesTool(what: string, commands: readonly string[], inserted = "insert_text") {
  const fields: typeof FIELDS = { ...FIELDS, insert: ` (insert_line, ${inserted})` };
  const named = commands.map((command) => command + (fields[command] ?? ""));
  return {
    description: `Views and edits ${what}. Commands and their fields: ${named.join(", ")}.`,
    input_schema: {
      type: "object",
      properties: { command: { type: "string", enum: commands }, ...PROPERTIES },
      required: ["command"],
    },
  };
}

const number = { type: "number" };
const integers = { type: "array", items: { type: "integer" } };
const SCREEN_PROPERTIES = {
  coordinate: { ...integers, description: "[x, y]; absent for the position of the mouse." },
  start_coordinate: integers,
  text: { ...text, description: "The text to type, the key such as ctrl+s, or the keys that are held during a click." },
  scroll_direction: { type: "string", enum: ["up", "down", "left", "right"] },
  scroll_amount: { type: "integer" },
  duration: { ...number, description: "In seconds." },
  region: { ...integers, description: "[x0, y0, x1, y1]." },
};
type ScreenField = keyof typeof SCREEN_PROPERTIES;
/** The fields of each action of a screen, and the first version of the tool that has it, if it is not the first of all. */
const ACTIONS: readonly (readonly [name: string, fields: readonly ScreenField[], since?: string])[] = [
  ["screenshot", []],
  ["cursor_position", []],
  ["mouse_move", ["coordinate"]],
  ...["left_click", "right_click", "middle_click", "double_click"].map(
    (name) => [name, ["coordinate", "text"]] as const,
  ),
  ["left_click_drag", ["start_coordinate", "coordinate"]],
  ["key", ["text"]],
  ["type", ["text"]],
  ["triple_click", ["coordinate", "text"], "20250124"],
  ["left_mouse_down", [], "20250124"],
  ["left_mouse_up", [], "20250124"],
  ["scroll", ["coordinate", "scroll_direction", "scroll_amount", "text"], "20250124"],
  ["hold_key", ["text", "duration"], "20250124"],
  ["wait", ["duration"], "20250124"],
  ["zoom", ["region"], "20251124"],
];

function screenTool(screen: MessageTool, version: string): Pick<Definition, "description" | "input_schema"> {
  const { display_width_px: width, display_height_px: height, display_number: display, enable_zoom = false } = screen;
  const actions = ACTIONS.filter(([name, , since = ""]) => since <= version && (name !== "zoom" || enable_zoom));
  const named = actions.map(([name, fields]) => (fields.length === 0 ? name : `${name} (${fields.join(", ")})`));
  const size = width === undefined || height === undefined ? "" : ` of ${width} × ${height} pixels`;
  const on = display === undefined ? "" : `, display ${display}`;
  return {
    description: `Operates the user's screen${size}${on}. Actions and their fields: ${named.join(", ")}.`,
    input_schema: {
      type: "object",
      properties: {
        action: { type: "string", enum: actions.map(([name]) => name) },
        ...pick(
          SCREEN_PROPERTIES,
          actions.flatMap(([, fields]) => fields),
        ),
      },
      required: ["action"],
    },
  };
}
