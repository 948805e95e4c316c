import type { Command } from "commander";
import type { ModelRoute } from "../api/admin/model.ts";
import { type CatalogAndUpstreams, withCatalog } from "./catalog.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { table } from "./table.ts";

const HEADINGS = ["ID", "CATEGORY", "CONTEXT", "CUT-OFF", "ROUTE", "INPUT", "OUTPUT", "HEALTH"];
const LEGEND = `INPUT and OUTPUT are credits per million tokens, where long prompts are dearer those of the longest.
HEALTH is what the services on this data directory have seen of a route since their start.`;

export function addModelsList(models: Command, terminal: Terminal): void {
  addCommand(models, "list", "List the models that a service with this configuration offers, and their routes").action(
    async (flags: CommonFlags) => {
      const list = async ({ config, catalog }: CatalogAndUpstreams) => {
        const [{ readHealth }, { toContractModel }, { reportRoutes }] = await Promise.all([
          import("../gateway/route-health.ts"),
          import("../catalog/to-contract.ts"),
          import("../gateway/route-health.ts"),
        ]);
        const health = readHealth(config.dataDir, terminal.clock());
        const json = catalog.list().map((model) => {
          return { ...toContractModel(model), routes: reportRoutes(model, health ?? []) };
        });
        const rows = json.flatMap(({ id, category, context_window, cutoff_date, routes }) =>
          routes.map((route, index) => {
            const model = index === 0 ? [id, category, String(context_window), cutoff_date] : ["", "", "", ""];
            const prices = [String(route.prices.input), String(route.prices.output)];
            return [...model, nameOf(route), ...prices, health === undefined ? "no service runs" : wordsOf(route)];
          }),
        );
        print(terminal, flags, { json, text: `${table(HEADINGS, rows)}\n${LEGEND}` });
      };
      await withCatalog(terminal, flags, list, { secrets: "unread" });
    },
  );
}

function nameOf({ route, weight }: ModelRoute): string {
  return weight === null ? route : `${route} (weight ${weight})`;
}

function wordsOf({ health }: ModelRoute): string {
  if (health === null) return "not called yet";
  const { state, limited_until, next_probe_at, last_failure, recent } = health;
  const { successes, failures } = recent;
  if (limited_until !== null) return `left alone until ${limited_until}`;
  if (state !== "closed") return `fails: ${last_failure?.failure ?? "unknown"}, next probe ${next_probe_at}`;
  if (failures > 0)
    return `${failures} of ${successes + failures} failed in five minutes, last: ${last_failure?.failure}`;
  return successes > 0 ? `answers, in ${health.first_byte_ms} ms` : "not called in five minutes";
}
