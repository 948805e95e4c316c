import { type Static, Type } from "typebox";
import type { ContentPart } from "../chat/request.ts";
import { detailsOf, type JsonObject, objectsIn, textOf } from "../json.ts";
import { compileKnown } from "../known-fields.ts";
import { Json, ObjectOf, OptionalText, PartialObject, TaggedUnion, Typed } from "../schema.ts";

/**
 * Tools that OpenAI defines and the client runs ("Shell", "Apply patch" and "Computer use" in OpenAI's documentation). For
 * other providers a tool becomes a function, whose calls come back as items of the tool's own type.
 */

const ITEM = { id: OptionalText, status: OptionalText };
const CALL = { ...ITEM, call_id: Type.String() };
const number = Type.Optional(Type.Number());

const ShellTool = Typed("shell", {
  environment: Type.Optional(
    ObjectOf("The client.", { type: Type.Literal("local"), skills: Type.Optional(Type.Array(Json)) }),
  ),
});
/** Every tool of this kind. A container of the provider as the environment of a shell is refused. */
export const typedTools = [
  ShellTool,
  Typed("local_shell", {}),
  Typed("apply_patch", {}),
  Typed("computer", {}),
  Typed("computer_use_preview", {
    display_width: Type.Integer(),
    display_height: Type.Integer(),
    environment: Type.String(),
  }),
] as const;

/** The types of these tools. */
export const TYPED_TOOLS = typedTools.map(({ properties }) => properties.type.const);

const ShellAction = Type.Object({
  commands: Type.Array(Type.String()),
  timeout_ms: number,
  max_output_length: number,
});
const ExecAction = Typed("exec", {
  command: Type.Array(Type.String()),
  env: Type.Unsafe<Record<string, string>>({ type: "object", additionalProperties: { type: "string" } }),
  timeout_ms: number,
  user: OptionalText,
  working_directory: OptionalText,
});
const file = { path: Type.String() };
const PatchOperation = TaggedUnion([
  Typed("create_file", { ...file, diff: Type.String() }),
  Typed("update_file", { ...file, diff: Type.String() }),
  Typed("delete_file", file),
]);
/** The calls that this service writes, without the fields of every item. */
export const ShellCall = Typed("shell_call", {
  action: ShellAction,
  environment: Type.Optional(Typed("local", {})),
});
export const LocalShellCall = Typed("local_shell_call", { action: ExecAction });
export const PatchCall = Typed("apply_patch_call", { operation: PatchOperation });
const point = { x: Type.Number(), y: Type.Number() };
const texts = Type.Array(Type.String());
const held = { keys: Type.Optional(texts) };
const Button = Type.Enum(["left", "right", "wheel", "back", "forward"]);
const path = Type.Array(Type.Object(point));
const scroll = { scroll_x: Type.Number(), scroll_y: Type.Number() };
const actions = [
  Typed("click", { ...point, button: Button, ...held }),
  Typed("double_click", { ...point, ...held }),
  Typed("drag", { path, ...held }),
  Typed("keypress", { keys: texts }),
  Typed("move", { ...point, ...held }),
  Typed("screenshot", {}),
  Typed("scroll", { ...point, ...scroll, ...held }),
  Typed("type", { text: Type.String() }),
  Typed("wait", {}),
] as const;
const ComputerAction = TaggedUnion(actions);
type ComputerAction = Static<typeof ComputerAction>;
export const ComputerCall = Typed("computer_call", {
  action: Type.Optional(ComputerAction),
  actions: Type.Optional(Type.Array(ComputerAction)),
  pending_safety_checks: Type.Array(Type.Unknown()),
});
const Screenshot = Typed("computer_screenshot", { image_url: Type.String() });
/** The calls of these tools, and their results. */
export const typedItems = [
  Type.Object({ ...CALL, ...ShellCall.properties }),
  Typed("shell_call_output", {
    ...CALL,
    output: Type.Array(Type.Object({ stdout: Type.String(), stderr: Type.String(), outcome: Json })),
    max_output_length: number,
  }),
  Type.Object({ ...CALL, ...LocalShellCall.properties }),
  // Its id is that of the call.
  Typed("local_shell_call_output", { ...ITEM, id: Type.String(), output: Type.String() }),
  Type.Object({ ...CALL, ...PatchCall.properties }),
  Typed("apply_patch_call_output", { ...CALL, output: OptionalText }),
  Typed("computer_call", {
    ...CALL,
    action: Type.Optional(Json),
    actions: Type.Optional(Type.Array(Json)),
    pending_safety_checks: Type.Optional(Type.Array(Json)),
  }),
  Typed("computer_call_output", {
    ...CALL,
    output: Screenshot,
    acknowledged_safety_checks: Type.Optional(Type.Array(Json)),
  }),
] as const;

/** The types of these items. */
export const TYPED_ITEMS: readonly string[] = typedItems.map(({ properties }) => properties.type.const);

type TypedTool = Static<(typeof typedTools)[number]>;
type TypedItem = Static<(typeof typedItems)[number]>;
type TranslatedFields = Static<typeof ShellCall | typeof LocalShellCall | typeof PatchCall | typeof ComputerCall>;

interface TranslatedTool {
  description: string;
  parameters: object;
  /** Begins the ids of its calls: OpenAI refuses others. */
  prefix: string;
  /** Returns the fields of a call's item that depend on the arguments, which a model wrote, in the form of the item. */
  fields(given: JsonObject): TranslatedFields;
}

const knownShellAction = compileKnown(ShellAction);
const knownExecAction = compileKnown(ExecAction);
const knownOperation = compileKnown(PatchOperation);
const knownAction = compileKnown(ComputerAction);

/** The fields of every action in one object: unlike a union, every provider takes such a schema. */
const AnyAction = Type.Object({
  type: Type.Enum(actions.map(({ properties }) => properties.type.const)),
  ...PartialObject({ ...point, button: Button, keys: texts, path, ...scroll, text: Type.String() }).properties,
});
const COMPUTER = `Operates the user's screen; its result is a screenshot. Actions and their fields: click (x, y, button),
double_click (x, y), move (x, y), drag (path), scroll (x, y, scroll_x, scroll_y), keypress (keys), type (text), screenshot, wait.
Coordinates are pixels of the last screenshot. A mouse action with keys holds them down.`;

const FUNCTIONS = {
  shell: {
    prefix: "sh",
    description: "Runs shell commands on the user's machine and returns the output of each.",
    parameters: ShellAction,
    fields: (given) => ({
      type: "shell_call",
      action: knownShellAction(given) ?? { commands: textsIn(given.commands) },
      environment: { type: "local" },
    }),
  },
  local_shell: {
    prefix: "lsh",
    description: "Runs one command, given as its program and arguments, on the user's machine and returns its output.",
    parameters: Type.Partial(Type.Omit(ExecAction, ["type"])),
    fields: (given) => ({
      type: "local_shell_call",
      action: knownExecAction({ env: {}, ...given, type: "exec" }) ?? {
        type: "exec",
        command: textsIn(given.command),
        env: {},
      },
    }),
  },
  apply_patch: {
    prefix: "apc",
    description: `Creates, updates or deletes one file. The diff has sections: a line @@, which may name the line of code above,
then unchanged lines after a space, removed ones after - and added ones after +, without line numbers. The diff of a new file
has only added lines; a deletion needs none.`,
    parameters: Type.Object({
      type: Type.Enum(["create_file", "update_file", "delete_file"]),
      path: Type.String(),
      diff: OptionalText,
    }),
    fields: (given) => ({
      type: "apply_patch_call",
      operation: knownOperation(given) ?? {
        type: "update_file",
        path: textOf(given.path) ?? "",
        diff: textOf(given.diff) ?? "",
      },
    }),
  },
  computer: {
    prefix: "cu",
    description: COMPUTER,
    parameters: Type.Object({ actions: Type.Array(AnyAction) }),
    fields: (given) => ({
      type: "computer_call",
      actions: actionsIn(objectsIn(given.actions)),
      pending_safety_checks: [],
    }),
  },
  computer_use_preview: {
    prefix: "cu",
    description: COMPUTER,
    parameters: AnyAction,
    fields: (given) => ({ type: "computer_call", action: actionsIn([given])[0], pending_safety_checks: [] }),
  },
} as const satisfies Record<string, TranslatedTool>;

function textsIn(value: unknown): string[] {
  const values: unknown[] = Array.isArray(value) ? value : [value];
  return values.filter((one) => typeof one === "string");
}

/** Returns the actions up to the first one in another form. The client takes a screenshot in its place. */
function actionsIn(given: readonly JsonObject[]): ComputerAction[] {
  const known = given.map((action) => knownAction({ button: "left", scroll_x: 0, scroll_y: 0, ...action }));
  const wrong = known.indexOf(undefined);
  const usable = known.slice(0, wrong < 0 ? known.length : wrong).filter((action) => action !== undefined);
  return wrong < 0 && usable.length > 0 ? usable : [...usable, { type: "screenshot" }];
}

/** Types of the tools whose calls come back as items of their own. */
export type TranslatedType = keyof typeof FUNCTIONS;

export function isTranslated(type: string): type is TranslatedType {
  return Object.hasOwn(FUNCTIONS, type);
}

/** Returns the function that stands for a tool. */
export function functionOf(tool: TypedTool): { description: string; parameters: JsonObject } {
  const { description, parameters } = FUNCTIONS[tool.type];
  return { description: [description, ...aboutOf(tool)].join("\n"), parameters: { ...parameters } };
}

function aboutOf(tool: TypedTool): string[] {
  if (tool.type === "computer_use_preview") {
    return [`The screen is ${tool.display_width} × ${tool.display_height} pixels, of the type ${tool.environment}.`];
  }
  const skills = tool.type === "shell" ? (tool.environment?.skills ?? []) : [];
  return skills.map((skill) => `Skill: ${JSON.stringify(skill)}`);
}

/** Returns the item of a call of such a function, without the fields of every item, and the beginning of its id. */
export function translatedCall(type: TranslatedType, given: unknown): { prefix: string; fields: TranslatedFields } {
  const { prefix, fields } = FUNCTIONS[type];
  return { prefix, fields: fields(detailsOf(given)) };
}

/** Returns the message that a call or a result becomes; the call of an assistant as its name and arguments. */
export function messageOf(item: TypedItem) {
  const called = (name: string, given: unknown) => {
    return { callId: "call_id" in item ? item.call_id : "", called: { name, arguments: JSON.stringify(given) } };
  };
  const result = (callId: string, content: string | ContentPart[]) => {
    return { result: { role: "tool" as const, tool_call_id: callId, content } };
  };
  switch (item.type) {
    case "shell_call":
      return called("shell", item.action);
    case "local_shell_call":
      return called("local_shell", item.action);
    case "apply_patch_call":
      return called("apply_patch", item.operation);
    case "computer_call":
      // The preview has one action a call.
      if (item.action !== undefined) return called("computer_use_preview", item.action);
      return called("computer", { actions: item.actions ?? [] });
    case "shell_call_output":
      return result(item.call_id, JSON.stringify(item.output));
    case "local_shell_call_output":
      return result(item.id, item.output);
    case "apply_patch_call_output":
      return result(item.call_id, [item.status, item.output].filter((text) => text !== undefined).join(": "));
    case "computer_call_output":
      return result(item.call_id, [{ type: "image_url", image_url: { url: item.output.image_url } }]);
  }
}
