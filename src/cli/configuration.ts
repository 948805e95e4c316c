import type { Config } from "../config.ts";
import type { CommonFlags } from "./command.ts";

export interface ConfigUse {
  /** `unread`: for commands that call no provider, so that a key that is not set does not stop them. */
  secrets?: "read" | "unread";
}

/** Reads the whole configuration; its schema is loaded only for commands that do. Rejects with OperatorError. */
export async function readConfig(
  { config, dataDir, host, port }: CommonFlags & { host?: string; port?: string },
  { secrets = "read" }: ConfigUse = {},
): Promise<Config> {
  const [{ loadConfig }, { PROVIDER_KEY_VARIABLES }] = await Promise.all([
    import("../config.ts"),
    import("../providers/registry.ts"),
  ]);
  const flags = { config, dataDir, host, port };
  return loadConfig({ flags, providerKeyVariables: PROVIDER_KEY_VARIABLES, secrets });
}
