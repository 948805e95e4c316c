import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";

/** The bodies of requests, as their makers' own clients declare them. */
export type Chat = OpenAI.Chat.Completions.ChatCompletionCreateParamsStreaming;
export type Responses = OpenAI.Responses.ResponseCreateParamsStreaming;
export type Messages = Anthropic.Messages.MessageCreateParamsStreaming;
