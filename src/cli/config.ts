import type { Command } from "commander";
import type { ConfigSources, Flags } from "../config/sources.ts";
import type { Config } from "../config.ts";
import { facts } from "../operations/command.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";

export type ConfigUse = Pick<ConfigSources, "secrets" | "files" | "isReload">;

/** Reads the whole configuration; its schema is loaded only for commands that do. Rejects with OperatorError. */
export async function readConfig({ config, dataDir, host, port }: Flags, use: ConfigUse = {}): Promise<Config> {
  const [{ loadConfig }, { PROVIDER_KEY_VARIABLES }] = await Promise.all([
    import("../config.ts"),
    import("../providers/registry.ts"),
  ]);
  const flags = { config, dataDir, host, port };
  return loadConfig({ flags, providerKeyVariables: PROVIDER_KEY_VARIABLES, ...use });
}

export function addConfig(program: Command, terminal: Terminal): void {
  const config = program.command("config").description("the configuration");
  addCommand(config, "check", "Check the configuration without starting the service, and print the prices").action(
    (flags: CommonFlags) => check(terminal, flags),
  );
}

async function check(terminal: Terminal, flags: CommonFlags): Promise<void> {
  const checked = await readConfig(flags);
  const [{ createUpstreams }, { buildCatalog }, { configurationHash }, pricing] = await Promise.all([
    import("../app/upstreams.ts"),
    import("../catalog/build.ts"),
    import("../config/difference.ts"),
    import("./prices.ts"),
  ]);
  const { listPrices, pricesTable, routePricesJson } = pricing;
  const hash = configurationHash(checked);
  const upstreams = createUpstreams(checked);
  await upstreams.close();
  const providers = upstreams.settings;
  const catalogAt = (timeMs: number) => buildCatalog({ ...checked, providers }, timeMs);
  const nowMs = terminal.clock();
  const catalog = catalogAt(nowMs);
  const later = new Map(laterDays(checked, nowMs).map((day) => [day, catalogAt(Date.parse(day))]));
  const prices = listPrices(catalog, later);
  const { file, dataDir, database, server } = checked;
  const json = {
    ok: true,
    file,
    hash,
    store: database === null ? "sqlite" : "postgres",
    dataDir,
    host: server.host,
    port: server.port,
    providers: providers.map(({ id }) => id),
    models: catalog.list().map(({ id }) => id),
    aliases: Object.fromEntries([...catalog.aliases].map(([alias, { id }]) => [alias, id])),
    prices: prices.map(routePricesJson),
  };
  const summary = facts({
    configuration: `${file ?? "no file: defaults and environment"}`,
    hash: String(hash),
    store: database === null ? `SQLite in ${dataDir}` : "PostgreSQL",
    address: `${server.host}, port ${server.port}`,
    providers: json.providers.join(", ") || "none but the built-in one",
    models: `${json.models.length}`,
    aliases:
      Object.entries(json.aliases)
        .map(([alias, id]) => `${alias} is ${id}`)
        .join(", ") || "none",
  });
  const text = `The configuration is valid.\n${summary}\n\n${pricesTable(prices)}`;
  print(terminal, flags, { json, text });
}

/** Returns the days in the future on which configured prices take effect, in ascending order. */
function laterDays({ models, priceLists = {} }: Pick<Config, "models" | "priceLists">, nowMs: number): string[] {
  const ofModels = models.flatMap(({ price, routes }) => [price, ...routes.map((route) => route.price)]);
  const prices = [...ofModels, ...Object.values(priceLists).flatMap((list) => Object.values(list.prices))];
  const days = prices.flatMap((price) => (Array.isArray(price) ? price.flatMap(({ from }) => from ?? []) : []));
  return [...new Set(days)].filter((day) => Date.parse(day) > nowMs).sort();
}
