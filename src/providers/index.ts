import { OperatorError } from "../errors.ts";
import { createOpenAiCompatible } from "./openai-compatible.ts";
import type { Provider } from "./provider.ts";
import { createSandbox } from "./sandbox.ts";
import type { Environment, ProviderSettings } from "./settings.ts";

export type { Environment, ProviderSettings } from "./settings.ts";

type Create = (settings: ProviderSettings, environment: Environment) => Provider;

/** Kinds of provider: a file each, and a line here. */
const KINDS: Readonly<Record<string, Create>> = {
  "openai-compatible": createOpenAiCompatible,
  sandbox: createSandbox,
};

/** The kinds that a provider may have. */
export const PROVIDER_KINDS: readonly string[] = Object.keys(KINDS);

/**
 * Makes the provider that the settings describe. `environment` holds the process's variables, for HTTPS_PROXY, HTTP_PROXY
 * and NO_PROXY. Throws OperatorError where a setting is wrong.
 */
export function createProvider(settings: ProviderSettings, environment: Environment): Provider {
  const create = Object.hasOwn(KINDS, settings.kind) ? KINDS[settings.kind] : undefined;
  if (create !== undefined) return create(settings, environment);
  const allowed = PROVIDER_KINDS.join(", ");
  throw new OperatorError(`providers '${settings.id}': kind is '${settings.kind}', but must be one of: ${allowed}`);
}
