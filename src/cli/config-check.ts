import type { Command } from "commander";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { readConfig } from "./configuration.ts";
import { facts } from "./table.ts";

export function addConfigCheck(config: Command, terminal: Terminal): void {
  addCommand(config, "check", "Check the configuration as a start would, without starting").action(
    async (flags: CommonFlags) => {
      const checked = await readConfig(flags);
      const [{ createUpstreams }, { buildCatalog }] = await Promise.all([
        import("../upstreams.ts"),
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
        configuration: `${file ?? "no file: defaults, and the environment"}`,
        store: database === null ? `SQLite in ${dataDir}` : "PostgreSQL",
        address: `${server.host}, port ${server.port}`,
        providers: json.providers.join(", ") || "none but the built-in one",
        models: `${json.models.length}`,
      });
      print(terminal, flags, { json, text: `The configuration is valid.\n${text}` });
    },
  );
}
