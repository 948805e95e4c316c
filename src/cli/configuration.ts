import { PROVIDER_KEY_VARIABLES } from "../catalog/known-providers.ts";
import { type Config, loadConfig } from "../config.ts";
import type { CommonFlags } from "./command.ts";

/** The configuration that a command runs under. Throws OperatorError. */
export function readConfig(flags: CommonFlags & { host?: string; port?: string }): Config {
  const { config, dataDir, host, port } = flags;
  return loadConfig({ flags: { config, dataDir, host, port }, providerKeyVariables: PROVIDER_KEY_VARIABLES });
}
