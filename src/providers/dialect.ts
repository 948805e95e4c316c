/** What an API that is compatible with OpenAI's takes in its own way. */
export interface Dialect {
  /** What it calls the bound of an answer. */
  maxTokens: "max_tokens" | "max_completion_tokens";
  /** Whether it knows the role `developer`; else such a message goes as `system`. */
  takesDeveloper: boolean;
  /** Whether a message may have a `name`. */
  takesNames: boolean;
  /** Whether an assistant's message may have a `refusal`; else it goes back as content. */
  takesRefusals: boolean;
  /** What it calls a message's reasoning when it comes back; null: it refuses it. */
  reasoning: "reasoning_content" | "reasoning" | null;
  /** Whether it wants `reasoning_details` back, as it gave them in `extra_content`. */
  takesReasoningDetails: boolean;
  /** Whether a tool call may bring back `extra_content`. */
  takesExtraContent: boolean;
  /** What stands in place of `reasoning_effort: none`. */
  withoutReasoning: Readonly<Record<string, unknown>> | null;
}

/** What most of them take. */
export const USUAL_DIALECT: Dialect = {
  maxTokens: "max_tokens",
  takesDeveloper: false,
  takesNames: true,
  takesRefusals: true,
  reasoning: "reasoning_content",
  takesReasoningDetails: false,
  takesExtraContent: true,
  withoutReasoning: null,
};
