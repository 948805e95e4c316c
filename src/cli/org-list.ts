import type { Command } from "commander";
import { usageReport } from "../credits/api-format.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { table } from "./table.ts";
import { freshBalance, withWorkspace } from "./workspace.ts";

export function addOrgList(org: Command, terminal: Terminal): void {
  addCommand(org, "list", "List the organizations, the oldest first").action(async (flags: CommonFlags) => {
    await withWorkspace(terminal, flags, async (workspace) => {
      const json = [];
      for (const { id, name, kind } of await workspace.accounts.organizations()) {
        const { creditsTotal, creditsAvailable } = usageReport(await freshBalance(workspace, terminal, id));
        json.push({ id, name, kind, creditsTotal, creditsAvailable });
      }
      const rows = json.map((row) => [row.id, row.name, row.kind, `${row.creditsTotal}`, `${row.creditsAvailable}`]);
      print(terminal, flags, { json, text: table(["ID", "NAME", "KIND", "CREDITS", "AVAILABLE"], rows) });
    });
  });
}
