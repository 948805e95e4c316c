import { OperatorError } from "../../errors.ts";
import type { ProviderSettings } from "../settings.ts";

/** Headers that belong to the connection, or would change how the answer is read. */
export const OWN_HEADERS =
  /^(accept-encoding|connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/;

/** Throws OperatorError where the settings of a provider name one of them. */
export function refuseOwnHeaders({ id, headers }: Pick<ProviderSettings, "id" | "headers">): void {
  const own = Object.keys(headers).find((name) => OWN_HEADERS.test(name.toLowerCase()));
  if (own !== undefined) throw new OperatorError(`providers '${id}': headers must not set '${own}'`);
}
