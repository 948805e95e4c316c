import { type Static, Type } from "typebox";
import { Id, Nullable, Strict, Time } from "./common.ts";

export const PlaygroundTokenRequest = Strict({
  organization_id: Type.Optional(Nullable(Id)),
});
export type PlaygroundTokenRequest = Static<typeof PlaygroundTokenRequest>;
export const PlaygroundToken = Type.Object({
  object: Type.Literal("playground_token"),
  token: Type.String({ description: "An access token for `/v1` that lives for minutes." }),
  organization_id: Id,
  keeps_conversations: Type.Boolean({
    description: "Whether what is asked with it is stored, as its organization has it.",
  }),
  expires_at: Time,
});
export type PlaygroundToken = Static<typeof PlaygroundToken>;
