import { type Static, Type } from "typebox";

/** The envelope of every error, with further fields where they help. */
export const ErrorEnvelope = Type.Object({
  error: Type.Object({
    message: Type.String(),
    type: Type.String(),
    param: Type.Union([Type.String(), Type.Null()]),
    code: Type.Union([Type.String(), Type.Null()]),
    credits_available: Type.Optional(Type.Number()),
    credits_required: Type.Optional(Type.Number()),
    affordable_max_tokens: Type.Optional(Type.Integer()),
  }),
});
export type ErrorEnvelope = Static<typeof ErrorEnvelope>;
