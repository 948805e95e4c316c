import type { Command } from "commander";
import { toContractModel } from "../catalog/to-contract.ts";
import { withCatalog } from "./catalog.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { table } from "./table.ts";

export function addModelsList(models: Command, terminal: Terminal): void {
  addCommand(models, "list", "List the models that a service with this configuration offers").action(
    async (flags: CommonFlags) => {
      await withCatalog(terminal, flags, async ({ catalog }) => {
        const json = catalog.list().map(toContractModel);
        const rows = json.map((model) => [
          model.id,
          model.category,
          String(model.context_window),
          String(model.pricing_details.input),
          String(model.pricing_details.output),
          model.cutoff_date,
        ]);
        const headings = ["ID", "CATEGORY", "CONTEXT", "INPUT", "OUTPUT", "CUT-OFF"];
        const text = `${table(headings, rows)}\nINPUT and OUTPUT are credits per million tokens.`;
        print(terminal, flags, { json, text });
      });
    },
  );
}
