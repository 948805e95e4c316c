import type { TSchema } from "typebox";
import { EmbeddingRequest } from "./embeddings/request.ts";
import { ImageRequest } from "./images/request.ts";
import { SpeechRequest } from "./speech/request.ts";
import { TranscriptionRequest } from "./transcription/request.ts";

interface Row {
  capability: string;
  work: string;
  /** Name of the operation in metrics and traces. */
  operation: string;
  path: string;
  request: TSchema & { properties: object; required: readonly string[] };
  /** Bound of the output tokens of a request where none is stated; of images, those of one. */
  outputTokensMost: number;
}

export const TASKS = {
  embedding: {
    capability: "embeddings",
    work: "embeddings",
    operation: "embeddings",
    path: "/v1/embeddings",
    request: EmbeddingRequest,
    outputTokensMost: 0,
  },
  image: {
    capability: "images",
    work: "the generation of images",
    operation: "image_generation",
    path: "/v1/images/generations",
    request: ImageRequest,
    // OpenAI documents up to 6,240 for one of its largest images.
    outputTokensMost: 16_384,
  },
  speech: {
    capability: "speech",
    work: "speech",
    operation: "speech",
    path: "/v1/audio/speech",
    request: SpeechRequest,
    outputTokensMost: 0,
  },
  transcription: {
    capability: "transcription",
    work: "transcriptions",
    operation: "transcription",
    path: "/v1/audio/transcriptions",
    request: TranscriptionRequest,
    outputTokensMost: 16_384,
  },
} as const satisfies Record<string, Row>;

export type Task = keyof typeof TASKS;
type TaskRow = (typeof TASKS)[Task];
export const TASK_NAMES = Object.keys(TASKS) as Task[];
export const TASK_CAPABILITIES = Object.values(TASKS).map(({ capability }) => capability) as TaskRow["capability"][];

/** Returns the task that a category or capabilities state; undefined for a model that chats. */
export function taskOf(category: string | undefined, capabilities: Iterable<string> = []): Task | undefined {
  const stated = new Set(capabilities);
  return TASK_NAMES.find((task) => task === category || stated.has(TASKS[task].capability));
}

/** Returns the name of a model's work, and the endpoint for it. */
export function workOf(task: Task | undefined): Pick<Row, "work" | "path"> {
  return task === undefined ? { work: "chat completions", path: "/v1/chat/completions" } : TASKS[task];
}
