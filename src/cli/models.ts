import type { Command } from "commander";
import { auditRow } from "../admin/audit.ts";
import type { ModelRoute } from "../api/admin/reports.ts";
import { FURTHER_ROWS } from "../api/price-classes.ts";
import type { LiveValues } from "../app/upstreams.ts";
import type { CatalogModel, Route } from "../catalog/model.ts";
import { UnknownIdError, UpstreamError } from "../errors.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import { table, tableOf } from "../operations/command.ts";
import type { Provider } from "../providers/provider.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { type ConfigUse, readConfig } from "./config.ts";
import { withWorkspace } from "./workspace.ts";

const ANSWER_WITHIN_MS = 30_000;
const CHECKED_AT_ONCE = 4;
/** Sandbox models read this message as a command; to any other model it is an ordinary prompt. */
const MESSAGE = "20 tokens";

const OTHERS = new Set<string>(FURTHER_ROWS.map(({ name }) => name));
const HEADINGS = ["ID", "CATEGORY", "CONTEXT", "CUT-OFF", "ROUTE", "INPUT", "OUTPUT", "OTHER", "HEALTH"];
const LEGEND = `INPUT and OUTPUT are credits per million tokens, for the longest prompts where those cost more. OTHER prices are credits
per million tokens, those of requests, searches, images, characters and seconds credits each.
HEALTH is measured by the services on this data directory since their start.`;

export function addModels(program: Command, terminal: Terminal): void {
  const models = program.command("models").description("models and their routes");
  addCommand(models, "list", "List the models that a service with this configuration offers, and their routes").action(
    (flags: CommonFlags) => list(terminal, flags),
  );
  addCommand(models, "check", "Request one token from every route of every model and show which routes respond").action(
    (flags: CommonFlags) => check(terminal, flags),
  );
  addCommand(
    models,
    "resume <route>",
    "End the pause of a route and close its circuits, on all services that share the store",
  ).action((route: string, flags: CommonFlags) => resume(terminal, route, flags));
}

async function withCatalog(
  terminal: Terminal,
  flags: CommonFlags,
  work: (parts: LiveValues) => Promise<void>,
  use: ConfigUse = {},
): Promise<void> {
  const config = await readConfig(flags, use);
  const [{ createCatalog, createUpstreams }, { createLog }] = await Promise.all([
    import("../app/upstreams.ts"),
    import("../telemetry/logger.ts"),
  ]);
  await using opened = new AsyncDisposableStack();
  const upstreams = opened.adopt(createUpstreams(config), (created) => created.close());
  const log = createLog(config.log.level);
  const catalog = createCatalog(config, upstreams, { ...terminal, ownPort: () => config.server.port, log });
  await catalog.refresh();
  await work({ config, catalog, upstreams });
}

async function list(terminal: Terminal, flags: CommonFlags): Promise<void> {
  const work = async ({ config, catalog }: LiveValues) => {
    const [{ readHealth, reportRoutes }, { toApiModel }] = await Promise.all([
      import("../gateway/route-health.ts"),
      import("../catalog/model.ts"),
    ]);
    const health = readHealth(config.dataDir, terminal.clock());
    const json = catalog.list().map((model) => {
      return { ...toApiModel(model), routes: reportRoutes(model, health ?? []) };
    });
    const rows = json.flatMap(({ id, category, context_length, cutoff_date, routes, pricing_details }) =>
      routes.map((route, index) => {
        const model = index === 0 ? [id, category, String(context_length ?? "unknown"), cutoff_date] : ["", "", "", ""];
        const others = Object.entries(route.prices)
          .filter(([name, price]) => OTHERS.has(name) && name in pricing_details && price > 0)
          .map(([name, price]) => `${name} ${price}`);
        const prices = [String(route.prices.input), String(route.prices.output), others.join(", ")];
        const name = route.weight === null ? route.route : `${route.route} (weight ${route.weight})`;
        return [...model, name, ...prices, health === undefined ? "no service runs" : wordsOf(route)];
      }),
    );
    print(terminal, flags, { json, text: `${table(HEADINGS, rows)}\n${LEGEND}` });
  };
  await withCatalog(terminal, flags, work, { secrets: "unread" });
}

function wordsOf({ health }: ModelRoute): string {
  if (health === null) return "not called yet";
  const { state, failing_organizations, limited_until, next_probe_at, last_failure, recent } = health;
  const { successes, failures } = recent;
  const fails = state === "open" ? "fails" : `fails for ${failing_organizations} of its organizations`;
  if (limited_until !== null) return `rate limited until ${limited_until}`;
  if (state !== "closed") return `${fails}: ${last_failure?.failure ?? "unknown"}, next probe ${next_probe_at}`;
  if (failures > 0)
    return `${failures} of ${successes + failures} failed in five minutes, last: ${last_failure?.failure}`;
  return successes > 0 ? `answers, in ${health.first_byte_ms} ms` : "not called in five minutes";
}

/** Records in the audit log, which running services read, that a route is resumed. */
async function resume(terminal: Terminal, route: string, flags: CommonFlags): Promise<void> {
  const [{ readHealth }, { upstreamOf }] = await Promise.all([
    import("../gateway/route-health.ts"),
    import("../catalog/model.ts"),
  ]);
  const requireRoute = async ({ config, catalog }: LiveValues) => {
    const offered = catalog.list().flatMap(({ routes }) => routes.map(upstreamOf));
    // A local server that fails is not found, but a running service has called it.
    const called = (readHealth(config.dataDir, terminal.clock()) ?? []).map((one) => one.route);
    if (![...offered, ...called].includes(route)) throw new UnknownIdError("route", route, "models list");
  };
  await withCatalog(terminal, flags, requireRoute, { secrets: "unread" });
  const change = { action: "route.resume", organizationId: null, subjectId: route };
  await withWorkspace(terminal, flags, (core) => core.store.admin.insertAudit(auditRow(core.actor, change, core)));
  const text = `Running services call ${route} again within a second, those on other nodes within five.`;
  print(terminal, flags, { json: { route }, text });
}

async function check(terminal: Terminal, flags: CommonFlags): Promise<void> {
  await withCatalog(terminal, flags, async ({ catalog, upstreams }) => {
    const turns = new FairTurns(CHECKED_AT_ONCE);
    const checkRoute = async (
      { id, embedding }: CatalogModel,
      { providerId: provider, model: upstreamModel }: Route,
    ) => {
      const startedMs = terminal.clock();
      const error = await failureOf(upstreams.providers.get(provider), upstreamModel, embedding !== undefined);
      const milliseconds = terminal.clock() - startedMs;
      return { model: id, provider, upstreamModel, ok: error === null, milliseconds, error };
    };
    const checks = catalog
      .list()
      // Others cost a whole image or text each.
      .filter(({ capabilities }) => capabilities.has("chat") || capabilities.has("embeddings"))
      .flatMap((model) =>
        model.routes.map((route) => turns.run(`${route.providerId}/${route.model}`, () => checkRoute(model, route))),
      );
    const routes = await Promise.all(checks);
    const failed = routes.filter(({ ok }) => !ok).length;
    const text = tableOf(routes, {
      MODEL: ({ model }) => model,
      ROUTE: ({ provider, upstreamModel }) => `${provider}/${upstreamModel}`,
      STATE: ({ ok }) => (ok ? "answers" : "fails"),
      MS: ({ milliseconds }) => milliseconds,
      WHY: ({ error }) => error?.replaceAll(/\s+/g, " "),
    });
    print(terminal, flags, { json: { ok: failed === 0, routes }, text });
    if (failed === 0) return;
    terminal.exitWith(1);
    terminal.error(`tollgate: ${failed} of ${routes.length} routes failed`);
  });
}

/** Calls a route; returns null if it answered with at least one chunk, otherwise the reason. */
async function failureOf(provider: Provider | undefined, model: string, isEmbedding: boolean): Promise<string | null> {
  if (provider === undefined) return "there is no such provider";
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const messages = [{ role: "user" as const, content: MESSAGE }];
    const request = { model, inputs: [MESSAGE], encoding: "float" as const };
    const inTurn = async <T>(work: () => T) => work();
    const answer = await (isEmbedding
      ? provider.tasks?.embedding?.({ model, request, signal, inTurn })
      : provider.complete({ request: { model, messages, max_tokens: 1, stream: true }, signal }));
    if (answer === undefined) return "the provider creates no embeddings";
    let count = 0;
    for await (const batch of answer.chunks) count += batch.length;
    return count > 0 ? null : "the answer was empty";
  } catch (error) {
    if (error instanceof UpstreamError)
      return error.said === undefined ? (error.publicReason ?? error.message) : `${error.message}: ${error.said}`;
    return error instanceof DOMException ? `no answer within ${ANSWER_WITHIN_MS / 1000} s` : String(error);
  }
}
