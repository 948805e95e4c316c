import { type Static, Type } from "typebox";
import { OptionalKeys, TokenCount } from "../schema.ts";

/** An uploaded file. Its JSON is a digest, so that a fingerprint of the request covers it. */
export class UploadedFile {
  readonly name: string;
  readonly type: string;
  readonly bytes: Uint8Array;
  readonly #digest: string;

  constructor({ name, type }: Pick<File, "name" | "type">, bytes: Uint8Array, digest: string) {
    this.name = name;
    this.type = type;
    this.bytes = bytes;
    this.#digest = digest;
  }

  toJSON(): string {
    return this.#digest;
  }
}

/** The fields of a form. One whose name ends with `[]` is a list. */
export type FormFields = Record<string, string | UploadedFile | (string | UploadedFile)[]>;

/** Fields of `POST /v1/audio/transcriptions`. */
export const TranscriptionRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "Id of a model with the capability `transcription`." }),
  file: Type.Unsafe<UploadedFile>({
    contentMediaType: "audio/*",
    description: "The audio, as a file.",
  }),
  ...OptionalKeys({
    language: Type.String({ minLength: 2, maxLength: 16, description: "Language of the audio, such as `en`." }),
    prompt: Type.String({ description: "Text that guides the style, or that comes before the audio." }),
    response_format: Type.Enum(["json", "text", "srt", "verbose_json", "vtt"], { description: "`json` by default." }),
    temperature: Type.Number({ minimum: 0, maximum: 1 }),
    "timestamp_granularities[]": Type.Array(Type.Enum(["word", "segment"]), { description: "For `verbose_json`." }),
  }),
});
export type TranscriptionRequest = Static<typeof TranscriptionRequest>;

/** Response of `POST /v1/audio/transcriptions` in JSON; the other formats are texts. */
export const Transcription = Type.Object({
  text: Type.String(),
  ...OptionalKeys({
    language: Type.String(),
    duration: Type.Number(),
    segments: Type.Array(Type.Unknown()),
    words: Type.Array(Type.Unknown()),
  }),
  usage: Type.Object({
    type: Type.Enum(["duration", "tokens"]),
    ...OptionalKeys({
      seconds: TokenCount,
      input_tokens: TokenCount,
      output_tokens: TokenCount,
      total_tokens: TokenCount,
    }),
    cost: Type.Number({ minimum: 0, description: "Credits." }),
  }),
});
export type Transcription = Static<typeof Transcription>;
