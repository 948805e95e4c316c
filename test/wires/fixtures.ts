import type { WireFixture } from "./fixture.ts";
import { anthropic } from "./fixtures/anthropic.ts";
import { azure } from "./fixtures/azure.ts";
import { bedrock } from "./fixtures/bedrock.ts";
import { cohere } from "./fixtures/cohere.ts";
import { google, googleVertex } from "./fixtures/google.ts";
import { mistral } from "./fixtures/mistral.ts";
import { openAiCompatible } from "./fixtures/openai-compatible.ts";
import { xai } from "./fixtures/xai.ts";

/** The suite's table: a wire is a line here. */
export const FIXTURES: readonly WireFixture[] = [
  openAiCompatible,
  anthropic,
  google,
  googleVertex,
  bedrock,
  azure,
  mistral,
  cohere,
  xai,
];
