import type OpenAI from "openai";

const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const TOOLS: OpenAI.ChatCompletionTool[] = [
  { type: "function", function: { name: "weather", parameters: PARAMETERS } },
];
export const RESULTS = ["12 degrees", "9 degrees"] as const;

/** A question, two tool calls, their results and the answer, as the client sees them. */
export async function converse(caller: OpenAI, model: string, stream: boolean): Promise<OpenAI.ChatCompletion[]> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "weather" }];
  const ask = () => {
    const request = { model, messages, tools: TOOLS };
    return stream
      ? caller.chat.completions.stream(request).finalChatCompletion()
      : caller.chat.completions.create(request);
  };
  const first = await ask();
  const message = first.choices[0]?.message;
  if (message === undefined) throw new Error("There is no message");
  messages.push(message);
  for (const [index, { id }] of (message.tool_calls ?? []).entries()) {
    messages.push({ role: "tool", tool_call_id: id, content: RESULTS[index] ?? "" });
  }
  return [first, await ask()];
}
