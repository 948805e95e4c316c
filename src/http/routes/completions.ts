import { ChatCompletion, ChatCompletionChunk } from "../../api/chat/completion.ts";
import { decodeChatCompletion } from "../../api/chat/decode.ts";
import { SentRequest } from "../../api/chat/request.ts";
import { decodeResponsesBody, isResponsesBody } from "../../api/chat/responses-body.ts";
import { decodeTextCompletion, TextCompletion, TextCompletionRequest } from "../../api/chat/text-completion.ts";
import { decodeEmbedding } from "../../api/embeddings/decode.ts";
import { EmbeddingList, EmbeddingRequest } from "../../api/embeddings/request.ts";
import { decodeImages } from "../../api/images/decode.ts";
import { ImageList, ImageRequest } from "../../api/images/request.ts";
import { decodeSpeech } from "../../api/speech/decode.ts";
import { SpeechAudio, SpeechRequest } from "../../api/speech/request.ts";
import { decodeTranscription } from "../../api/transcription/decode.ts";
import { type FormFields, Transcription, TranscriptionRequest } from "../../api/transcription/request.ts";
import { answered } from "../answer.ts";

export const createChatCompletion = answered({
  path: "/v1/chat/completions",
  operationId: "createChatCompletion",
  summary: "Create a chat completion",
  description:
    "Generates a reply to a conversation and charges the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  body: SentRequest,
  response: { description: "The completion, or its events.", schema: ChatCompletion, eventSchema: ChatCompletionChunk },
  decode: ({ body }, { completions }) =>
    isResponsesBody(body) ? decodeResponsesBody(body, completions) : decodeChatCompletion(body, completions),
});

export const createTextCompletion = answered({
  path: "/v1/completions",
  operationId: "createTextCompletion",
  summary: "Complete a text",
  description:
    "Continues a text, in OpenAI's form from before chat completions, and charges the token's organization. Providers that serve it receive the prompt as it is; others receive it as a message of a chat completion.",
  body: TextCompletionRequest,
  response: { description: "The completion, or its events.", schema: TextCompletion, eventSchema: TextCompletion },
  decode: ({ body }) => decodeTextCompletion(body),
});

export const createEmbedding = answered({
  path: "/v1/embeddings",
  operationId: "createEmbedding",
  summary: "Create embeddings",
  description:
    "Turns texts into vectors and charges the token's organization for their tokens. `null` counts as an absent field; unknown fields are ignored and named in `x-tollgate-ignored`.",
  body: EmbeddingRequest,
  response: { description: "The embeddings, in the order of the inputs.", schema: EmbeddingList },
  decode: ({ body }) => decodeEmbedding(body),
});

export const createImages = answered({
  path: "/v1/images/generations",
  operationId: "createImages",
  summary: "Create images",
  description:
    "Makes images of a text and charges the token's organization by the image or by tokens. `null` counts as an absent field; unknown fields are ignored and named in `x-tollgate-ignored`.",
  body: ImageRequest,
  response: { description: "The images.", schema: ImageList },
  decode: ({ body }) => decodeImages(body),
});

export const createSpeech = answered({
  path: "/v1/audio/speech",
  operationId: "createSpeech",
  summary: "Create speech",
  description:
    "Speaks a text, and charges the token's organization by the character. The audio is sent as it arrives. `null` counts as an absent field; unknown fields are ignored and named in `x-tollgate-ignored`.",
  body: SpeechRequest,
  response: { description: "The audio, in the format of the request.", schema: SpeechAudio, contentType: "audio/*" },
  decode: ({ body }) => decodeSpeech(body),
});

export const createTranscription = answered({
  path: "/v1/audio/transcriptions",
  operationId: "createTranscription",
  summary: "Transcribe audio",
  description:
    "Turns the audio of a file into text, and charges the token's organization by the second or by tokens. Unknown fields are ignored and named in `x-tollgate-ignored`.",
  body: TranscriptionRequest,
  isForm: true,
  response: { description: "The text, in the format of the request.", schema: Transcription },
  decode: ({ body }) => decodeTranscription(body as FormFields),
});
