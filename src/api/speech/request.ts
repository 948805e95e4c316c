import { type Static, Type } from "typebox";
import { OptionalKeys } from "../schema.ts";

/** OpenAI's own limit. */
const CHARACTERS_MAX = 4_096;

/** Body of `POST /v1/audio/speech`. */
export const SpeechRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "Id of a model with the capability `speech`." }),
  input: Type.String({ minLength: 1, maxLength: CHARACTERS_MAX, description: "The text to be spoken." }),
  voice: Type.Union([Type.String({ minLength: 1 }), Type.Object({ id: Type.String({ minLength: 1 }) })], {
    description: "A voice of the provider.",
  }),
  ...OptionalKeys({
    instructions: Type.String({ maxLength: CHARACTERS_MAX, description: "How to speak." }),
    response_format: Type.Enum(["mp3", "opus", "aac", "flac", "wav", "pcm"], { description: "`mp3` by default." }),
    speed: Type.Number({ minimum: 0.25, maximum: 4 }),
  }),
});
export type SpeechRequest = Static<typeof SpeechRequest>;

/** The audio, in the format of the request. */
export const SpeechAudio = Type.Unsafe<never>({ type: "string", contentMediaType: "audio/*" });
