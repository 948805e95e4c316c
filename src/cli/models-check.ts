import type { Command } from "commander";
import type { CatalogModel, Route } from "../catalog/model.ts";
import { UpstreamError } from "../errors.ts";
import type { Provider } from "../providers/provider.ts";
import { withCatalog } from "./catalog.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { table } from "./table.ts";

const ANSWER_WITHIN_MS = 30_000;
const CHECKED_AT_ONCE = 4;
/** One of the messages that sandbox models answer like any other; to all others it is as good as any. */
const MESSAGE = "20 tokens";

interface CheckedRoute {
  model: string;
  provider: string;
  upstreamModel: string;
  ok: boolean;
  milliseconds: number;
  error: string | null;
}

export function addModelsCheck(models: Command, terminal: Terminal): void {
  addCommand(models, "check", "Call every route of every model for one token, and tell which answer").action(
    async (flags: CommonFlags) => {
      await withCatalog(terminal, flags, async ({ catalog, upstreams }) => {
        const routes = catalog.list().flatMap((model) => model.routes.map((route) => ({ model, route })));
        const checked: CheckedRoute[] = [];
        const waiting = routes.entries();
        const work = async () => {
          for (const [index, { model, route }] of waiting) {
            checked[index] = await check(terminal, model, route, upstreams.providers.get(route.providerId));
          }
        };
        await Promise.all(Array.from({ length: CHECKED_AT_ONCE }, work));
        report(terminal, flags, checked);
      });
    },
  );
}

async function check(
  { clock }: Terminal,
  model: CatalogModel,
  route: Route,
  provider: Provider | undefined,
): Promise<CheckedRoute> {
  const startedMs = clock();
  const error = await failureOf(route, provider);
  const milliseconds = clock() - startedMs;
  const { providerId, model: upstreamModel } = route;
  return { model: model.id, provider: providerId, upstreamModel, ok: error === null, milliseconds, error };
}

/** Null where the route answered with at least one chunk, else why not. */
async function failureOf(route: Route, provider: Provider | undefined): Promise<string | null> {
  if (provider === undefined) return "there is no such provider";
  const request = { model: route.model, messages: [{ role: "user" as const, content: MESSAGE }] };
  try {
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const { chunks } = await provider.complete({ request: { ...request, max_tokens: 1, stream: true }, signal });
    let count = 0;
    for await (const batch of chunks) count += batch.length;
    return count > 0 ? null : "the answer was empty";
  } catch (error) {
    if (error instanceof UpstreamError)
      return error.said === undefined ? (error.publicReason ?? error.message) : `${error.message}: ${error.said}`;
    return error instanceof DOMException ? `no answer within ${ANSWER_WITHIN_MS / 1000} s` : String(error);
  }
}

function report(terminal: Terminal, flags: CommonFlags, routes: CheckedRoute[]): void {
  const failed = routes.filter(({ ok }) => !ok);
  const rows = routes.map(({ model, provider, upstreamModel, ok, milliseconds, error }) => [
    model,
    `${provider}/${upstreamModel}`,
    ok ? "answers" : "fails",
    `${milliseconds}`,
    (error ?? "").replaceAll(/\s+/g, " "),
  ]);
  print(terminal, flags, {
    json: { ok: failed.length === 0, routes },
    text: table(["MODEL", "ROUTE", "STATE", "MS", "WHY"], rows),
  });
  if (failed.length === 0) return;
  terminal.exitWith(1);
  terminal.error(`tollgate: ${failed.length} of ${routes.length} routes failed`);
}
