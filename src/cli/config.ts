import type { Command } from "commander";
import type { Config } from "../config.ts";
import { addCommand, type CommonFlags, facts, print, type Terminal } from "./command.ts";

export interface ConfigUse {
  /** `unread`: for commands that call no provider, so that a key that is not set does not stop them. */
  secrets?: "read" | "unread";
  /** Receives the files that are read. */
  files?: Set<string>;
  /** True for a service that runs. */
  isReload?: boolean;
}

/** Reads the whole configuration; its schema is loaded only for commands that do. Rejects with OperatorError. */
export async function readConfig(
  { config, dataDir, host, port }: CommonFlags & { host?: string; port?: string },
  use: ConfigUse = {},
): Promise<Config> {
  const [{ loadConfig }, { PROVIDER_KEY_VARIABLES }] = await Promise.all([
    import("../config.ts"),
    import("../providers/registry.ts"),
  ]);
  const flags = { config, dataDir, host, port };
  return loadConfig({ flags, providerKeyVariables: PROVIDER_KEY_VARIABLES, ...use });
}

export function addConfig(program: Command, terminal: Terminal): void {
  const config = program.command("config").description("the configuration");
  addCommand(config, "check", "Check the configuration without starting the service").action(
    async (flags: CommonFlags) => {
      const checked = await readConfig(flags);
      const [{ createUpstreams }, { buildCatalog }] = await Promise.all([
        import("../app/upstreams.ts"),
        import("../catalog/build.ts"),
      ]);
      const upstreams = createUpstreams(checked);
      const catalog = buildCatalog({ ...checked, providers: upstreams.settings }, terminal.clock());
      await upstreams.close();
      const { file, dataDir, database, server } = checked;
      const json = {
        ok: true,
        file,
        store: database === null ? "sqlite" : "postgres",
        dataDir,
        host: server.host,
        port: server.port,
        providers: upstreams.settings.map(({ id }) => id),
        models: catalog.list().map(({ id }) => id),
      };
      const text = facts({
        configuration: `${file ?? "no file: defaults and environment"}`,
        store: database === null ? `SQLite in ${dataDir}` : "PostgreSQL",
        address: `${server.host}, port ${server.port}`,
        providers: json.providers.join(", ") || "none but the built-in one",
        models: `${json.models.length}`,
      });
      print(terminal, flags, { json, text: `The configuration is valid.\n${text}` });
    },
  );
}
