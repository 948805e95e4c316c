import type { Command } from "commander";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import type { Books, StatementEntry } from "../stores/store.ts";
import { addCommand, type CommonFlags, type Terminal } from "./command.ts";
import { creditsOf } from "./credits-balance.ts";
import { isoTime } from "./times.ts";
import { freshBalance, withWorkspace } from "./workspace.ts";

const PAGE_ENTRIES = 500;

export function addCreditsStatement(credits: Command, terminal: Terminal): void {
  addCommand(credits, "statement", "List every grant and every charge of an organization, the oldest first")
    .requiredOption("--org <id>", "organization")
    .action(async (flags: CommonFlags & { org: string }) => {
      await withWorkspace(terminal, flags, async (workspace) => {
        const balance = await freshBalance(workspace, terminal, flags.org);
        const entries = entriesOf(workspace.store.books, flags.org);
        if (flags.json !== true) return printLines(terminal, entries, formatCredits(balance.available));
        const json = [];
        for await (const entry of entries) json.push(entryJson(entry));
        terminal.out(JSON.stringify({ ...creditsOf(balance), entries: json }));
      });
    });
}

/** The whole statement, read a page at a time. */
export async function* entriesOf(books: Books, organizationId: string): AsyncGenerator<StatementEntry> {
  let after: string | null = null;
  for (;;) {
    const page: StatementEntry[] = await books.statement(organizationId, { after, limit: PAGE_ENTRIES });
    yield* page;
    if (page.length < PAGE_ENTRIES) return;
    after = page.at(-1)?.position ?? null;
  }
}

/** Lines go out as they are read: a statement may be longer than memory. */
async function printLines(terminal: Terminal, entries: AsyncIterable<StatementEntry>, available: string) {
  const line = (cells: [string, string, string, string]) =>
    terminal.out(`${cells[0].padEnd(24)}  ${cells[1].padEnd(6)}  ${cells[2].padStart(18)}  ${cells[3]}`.trimEnd());
  line(["TIME", "KIND", "CREDITS", "WHAT"]);
  for await (const entry of entries) {
    if (entry.kind === "grant") {
      const { id, amount, reference } = entry.grant;
      line([
        isoTime(entry.atMs),
        "grant",
        `+${formatCredits(amount)}`,
        reference === null ? id : `${id} (${reference})`,
      ]);
    } else {
      const { cost, model, requestId, end } = entry.event;
      const what = end === "complete" ? `${model} ${requestId}` : `${model} ${requestId} (${end.replaceAll("_", " ")})`;
      line([isoTime(entry.atMs), "charge", formatCredits(-cost), what]);
    }
  }
  terminal.out(`${available} credits are available.`);
}

function entryJson(entry: StatementEntry) {
  const at = isoTime(entry.atMs);
  if (entry.kind === "grant") {
    const { id, amount, effectiveAtMs, expiresAtMs, reference, state } = entry.grant;
    return {
      kind: "grant",
      at,
      credits: creditsFromMicro(amount),
      id,
      state,
      effectiveAt: isoTime(effectiveAtMs),
      expiresAt: isoTime(expiresAtMs),
      reference,
    };
  }
  const { event } = entry;
  return {
    kind: "charge",
    at,
    credits: creditsFromMicro(-event.cost),
    holdId: event.holdId,
    sequence: event.sequence,
    requestId: event.requestId,
    tokenId: event.tokenId,
    model: event.model,
    upstream: event.upstream,
    tokens: event.tokens,
    basis: event.basis,
    end: event.end,
    shortfall: creditsFromMicro(event.shortfall),
    metadata: event.metadata,
  };
}
