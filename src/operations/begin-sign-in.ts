import { SIGN_IN_LIFE_MS } from "../admin/token.ts";
import type { SignInAddress } from "../api/admin/session.ts";
import { ApiError } from "../errors.ts";
import { type CallConnection, type OperationServices, operation } from "./operation.ts";

/** More than people behind one address need, with sessions of an hour. */
const PER_MINUTE = 60;

export const beginSignIn = operation({
  route: "POST /session/authorization",
  permission: "session:own",
  summary: "Begin to sign in with an identity provider: open the returned address in the browser within 10 minutes",
  body: (s) =>
    s.Strict({
      issuer: s.Type.String({ maxLength: 2000, description: "One of `identity_providers` of `GET /service`." }),
      prompt: s.Type.Optional(
        s.Type.Literal("login", { description: "Asks who signs in, even if the provider knows: for another account." }),
      ),
    }),
  isRepeatable: false,
  answer: { status: 200, description: "The address; a cookie is set.", schema: (s) => s.SignInAddress },
  countGuest: countSignIn,
  async handle({ openIdSignIn }, { body, connection }): Promise<SignInAddress> {
    const { url, secret } = await openIdSignIn.begin(body.issuer, redirectUriOf(connection), body.prompt);
    connection.setCookie("signIn", secret, SIGN_IN_LIFE_MS);
    return { object: "sign_in_address", url };
  },
});

/** Counts the requests of an address for which the service sends requests to an identity provider. */
export async function countSignIn({ gateway }: Pick<OperationServices, "gateway">, clientKey: string): Promise<void> {
  await gateway.limits.countRequest([{ key: `sign-in:provider:${clientKey}`, limit: PER_MINUTE }]);
}

/** Returns the page of the console to which a provider sends the browser back. Throws invalid_value. */
export function redirectUriOf({ publicUrl }: CallConnection): string {
  const url = URL.parse(`${publicUrl}/sign-in`);
  if (url !== null) return url.href;
  throw new ApiError("invalid_value", "The header `Host` does not contain the address of this service.");
}
