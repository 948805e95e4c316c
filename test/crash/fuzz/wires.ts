import type { Answer, Report, Wire } from "./intent.ts";
import { written } from "./reports.ts";

/** An event of a stream, and what is told once it was written. */
export interface Step {
  text: string;
  piece?: true;
  report?: Report;
  /** True for the event that finishes the answer. */
  finishes?: true;
}

const data = (event: object) => `data: ${JSON.stringify(event)}\n\n`;
const named = (event: object) => `event: ${(event as { type: string }).type}\n${data(event)}`;

const RESPONSE = { id: "resp_up", object: "response", model: "m" };
const FINISH: Record<Wire, Record<Answer["finish"], string>> = {
  chat: { stop: "stop", length: "length", tools: "tool_calls" },
  messages: { stop: "end_turn", length: "max_tokens", tools: "tool_use" },
  responses: { stop: "completed", length: "incomplete", tools: "completed" },
  embeddings: { stop: "", length: "", tools: "" },
};

/** Returns an answer as the steps of a stream, up to its end. */
export function stepsOf(answer: Answer): Step[] {
  const { wire, pieces, ending, endsAfter } = answer;
  const isBroken = ["cut", "unfinished", "error", "garbage"].includes(ending);
  const shown = isBroken ? pieces.slice(0, endsAfter) : pieces;
  const write = wire === "chat" ? data : named;
  const { first, middle } = answer.reports;
  const steps: Step[] = openingOf(answer).map((event) => ({ text: write(event) }));
  if (first !== undefined && wire !== "responses") {
    if (wire === "chat") steps.push({ text: data({ choices: [], usage: written(wire, first) }) });
    (steps.at(-1) as Step).report = first;
  }
  for (const [index, piece] of shown.entries()) {
    steps.push({ text: piece.events.map((event) => write(event)).join(""), piece: true });
    if (middle !== undefined && index === pieces.length >> 1) steps.push(...reportSteps(wire, middle));
  }
  if (ending === "error") steps.push({ text: write(errorOf(wire)) });
  if (ending === "garbage") steps.push({ text: 'data: {"choices": [{"delta": NaN\n\n' });
  return isBroken ? steps : [...steps, ...closingOf(answer)];
}

function openingOf({ wire, reports: { first } }: Answer): object[] {
  if (wire === "chat") return [{ id: "c", model: "m", choices: [{ index: 0, delta: { role: "assistant" } }] }];
  if (wire === "responses") return [{ type: "response.created", response: { ...RESPONSE, output: [] } }];
  const usage = first === undefined ? {} : { usage: written(wire, first) };
  return [
    { type: "message_start", message: { id: "msg_up", type: "message", role: "assistant", model: "m", ...usage } },
  ];
}

function reportSteps(wire: Wire, report: Report): Step[] {
  if (wire === "responses") return [];
  const usage = written(wire, report);
  return [
    {
      text: wire === "chat" ? data({ choices: [], usage }) : named({ type: "message_delta", delta: {}, usage }),
      report,
    },
  ];
}

function errorOf(wire: Wire): object {
  if (wire === "messages") return { type: "error", error: { type: "api_error", message: "it broke" } };
  if (wire === "responses") return { type: "error", code: "server_error", message: "it broke" };
  return { error: { message: "it broke", code: "server_error" } };
}

function closingOf({ wire, finish, reports: { last }, pieces }: Answer): Step[] {
  const reason = FINISH[wire][finish];
  if (wire === "chat") {
    const end = { choices: [{ index: 0, delta: {}, finish_reason: reason }] };
    return [
      { text: data(end), finishes: true },
      ...last.flatMap((report) => reportSteps(wire, report)),
      { text: "data: [DONE]\n\n" },
    ];
  }
  if (wire === "messages") {
    const end = { type: "message_delta", delta: { stop_reason: reason, stop_sequence: null } };
    const [report] = last;
    const reported =
      report === undefined ? { text: named(end) } : { text: named({ ...end, usage: written(wire, report) }), report };
    return [
      { ...reported, finishes: true },
      ...last.slice(1).flatMap((again) => reportSteps(wire, again)),
      { text: named({ type: "message_stop" }) },
    ];
  }
  const report = last.at(-1);
  const output = pieces.map(({ whole }) => whole);
  const usage = report === undefined ? null : written(wire, report);
  const response = { ...RESPONSE, status: reason, output, usage };
  const step: Step = { text: named({ type: `response.${reason}`, response }), finishes: true };
  return [report === undefined ? step : { ...step, report }];
}

/** Returns an answer as one document, and the report in it. `inputs` is the number of inputs of embeddings. */
export function documentOf(answer: Answer, inputs: number): { text: string; report: Report | undefined } {
  const { wire, finish, reports, pieces } = answer;
  const report = reports.last.at(-1) ?? reports.middle;
  const usage = report && { usage: written(wire, report) };
  const reason = FINISH[wire][finish];
  if (wire === "embeddings") {
    const vectors = Array.from({ length: inputs }, (_, index) => ({ index, embedding: [0.25, -1, index] }));
    return { text: JSON.stringify({ object: "list", data: vectors, model: "m", ...usage }), report };
  }
  if (wire === "messages") {
    const content = pieces.map(({ whole }) => whole);
    const common = { id: "msg_up", type: "message", role: "assistant", model: "m", stop_reason: reason };
    return { text: JSON.stringify({ ...common, content, ...usage }), report };
  }
  if (wire === "responses") {
    const output = pieces.map(({ whole }) => whole);
    return { text: JSON.stringify({ ...RESPONSE, status: reason, output, ...usage }), report };
  }
  const { message, beside, around } = chatMessage(answer);
  const choices = [{ index: 0, message, finish_reason: reason, ...beside }];
  return {
    text: JSON.stringify({ id: "c", object: "chat.completion", model: "m", choices, ...around, ...usage }),
    report,
  };
}

/** Adds the deltas of a chat completion up to its message. */
function chatMessage({ pieces }: Answer) {
  const message: Record<string, unknown> = { role: "assistant", content: "" };
  let beside = {};
  let around = {};
  const parts: unknown[] = [];
  for (const { whole } of pieces) {
    for (const [name, value] of Object.entries(whole)) {
      const before = message[name];
      if (name === "beside") beside = { ...beside, ...(value as object) };
      else if (name === "around") around = { ...around, ...(value as object) };
      else if (name === "content" && Array.isArray(value)) parts.push(...value);
      else if (typeof before === "string" && typeof value === "string") message[name] = before + value;
      else if (Array.isArray(before) && Array.isArray(value)) message[name] = [...before, ...value];
      else message[name] = value;
    }
  }
  if (parts.length > 0) message.content = [{ type: "text", text: message.content }, ...parts];
  return { message, beside, around };
}
