import { identityTokenId } from "../admin/token.ts";
import type { AdminModelList, ResumedRoute } from "../api/admin/reports.ts";
import type { PlaygroundToken } from "../api/admin/session.ts";
import { isoTime } from "../api/time.ts";
import { pricesByClass } from "../credits/price.ts";
import { ApiError } from "../errors.ts";
import { found, notFound } from "./core.ts";
import { type OperationCall, type OperationServices, operation, requireOwn } from "./operation.ts";
import { expectActive, tokenRow } from "./token-terms.ts";

export const showService = operation({
  route: "GET /service",
  permission: "service:read",
  summary: "Show the facts of the service that need no sign-in",
  answer: { status: 200, description: "The facts.", schema: (s) => s.ServiceFacts },
  handle: async ({ facts }) => facts,
});

export const listModelsWithRoutes = operation({
  route: "GET /models",
  permission: "models:read",
  summary: "List the models that the caller may use, with facts and prices; operators also see routes and their health",
  answer: { status: 200, description: "The models.", schema: (s) => s.AdminModelList },
  async handle({ gateway, clock, accounts }, { who, may }): Promise<AdminModelList> {
    // Imported here, because every command loads the list of operations.
    const [{ priceHistory, toApiModel }, { catalogFor, mayUse }, { reportRoutes }] = await Promise.all([
      import("../catalog/model.ts"),
      import("../gateway/plan.ts"),
      import("../gateway/route-health.ts"),
    ]);
    const health = gateway.circuits.health(clock());
    const withRoutes = may("upstreams:read");
    const organizationId = who?.organizationId ?? "";
    const { models: organizationModels = null, priceList = null } = (await accounts.organization(organizationId)) ?? {};
    const token = who?.person ? await accounts.token(identityTokenId(who.person, organizationId)) : who?.token;
    const models = token?.models ?? null;
    const own = { organizationId, organizationKind: "standard", organizationModels, aliases: null, priceList } as const;
    const caller = { ...own, models: models && new Set(models) };
    const usable = catalogFor(gateway.catalog, caller)
      .list()
      .filter((model) => withRoutes || mayUse(caller, model));
    const data = usable.map((model) => ({
      ...toApiModel(model),
      playground: model.playground,
      prices: pricesByClass(model.prices),
      price_history: priceHistory(model.routes).map(({ fromMs, prices }) => ({
        from: isoTime(fromMs),
        prices: pricesByClass(prices),
      })),
      routes: withRoutes ? reportRoutes(model, health) : null,
    }));
    return { object: "list", data };
  },
});

/** The route is in the body, because its name contains slashes, which proxies decode in a path. */
export const resumeRoute = operation({
  route: "POST /routes/resume",
  permission: "upstreams:write",
  summary:
    "End the pause of a route and close its circuits; takes effect within 1 s on one node and within 5 s on all nodes",
  body: (s) =>
    s.Strict({
      route: s.Type.String({ minLength: 1, maxLength: 1000, description: "A route as the list of models has it." }),
    }),
  answer: { status: 200, description: "The route and its health on this node.", schema: (s) => s.ResumedRoute },
  async handle({ gateway, audit, actor, resumptions, clock }, { body: { route } }): Promise<ResumedRoute> {
    // Imported here, because every command loads the list of operations.
    const { upstreamOf } = await import("../catalog/model.ts");
    if (!gateway.catalog.list().some(({ routes }) => routes.some((one) => upstreamOf(one) === route))) {
      const message = "There is no route with this name. GET /admin/v1/models lists the routes of all models.";
      throw new ApiError("invalid_value", message, { param: "route" });
    }
    await audit.record(actor, { action: "route.resume", organizationId: null, subjectId: route });
    await resumptions.apply();
    const seen = gateway.circuits.health(clock()).find((one) => one.route === route);
    return { object: "route", route, health: seen?.health ?? null };
  },
});

export const createPlaygroundToken = operation({
  route: "POST /playground/token",
  permission: "playground:use",
  summary: "Create a short-lived access token for `/v1`; guests get one if the playground is open to them",
  body: (s) => s.Strict({ organization_id: s.Type.Optional(s.Nullable(s.Id)) }),
  answer: {
    status: 201,
    description: "The token.",
    schema: (s) => s.PlaygroundToken,
    secret: {
      field: "token",
      hint: () =>
        "The token was shown in the first response and is not stored. Ask for another one with a new Idempotency-Key.",
    },
  },
  async countGuest({ gateway, facts }, clientKey) {
    const limit = facts.guest_playground.requests_per_minute;
    await gateway.limits.countRequest([{ key: `guest:${clientKey}`, limit }]);
  },
  async handle(services, { who, body }): Promise<PlaygroundToken> {
    const { token, organizationId, expiresAtMs } = await shortTokenFor(services, who, body.organization_id ?? null);
    const organization = await services.accounts.organization(organizationId);
    return {
      object: "playground_token",
      token,
      organization_id: organizationId,
      keeps_conversations: organization?.keepsConversations === true,
      expires_at: isoTime(expiresAtMs),
    };
  },
});

/** Members spend by the token of their sign-in, people by the token that stands for them, others by that of the console. */
async function shortTokenFor(services: OperationServices, who: OperationCall["who"], named: string | null) {
  const { shortTokens, identities, facts, actor } = services;
  const { person = null, organizationId: limitedTo = null, session = null } = who ?? {};
  if (person !== null && session === null) {
    // It would have neither the scopes nor the end of the JWT.
    throw new ApiError("insufficient_role", "Sign in to the console: a JWT is itself an access token for `/v1`.");
  }
  if (who !== null && named !== null) requireOwn(who, named);
  let token = who?.token;
  if (person !== null && limitedTo !== null) {
    token = await tokenRow(services, (await identities.tokenOf(person, limitedTo)).id);
  } else if (!token) {
    const organizationId = who === null ? guestsOrganization(facts, named) : named;
    if (organizationId === null) {
      const message = "Missing required parameter: 'organization_id': whose credits the playground spends.";
      throw new ApiError("missing_required_parameter", message, { param: "organization_id" });
    }
    token = await found(shortTokens.consoleToken(organizationId, actor));
  }
  expectActive(services, token, "used");
  if (!token.scopes.includes("chat.completions:write")) {
    throw new ApiError("insufficient_scope", "Your token needs the scope `chat.completions:write`.");
  }
  return shortTokens.issueFor(token, { actor, session, operatorId: who?.token === null ? who.id : null });
}

function guestsOrganization({ guest_playground }: OperationServices["facts"], named: string | null): string {
  if (!guest_playground.open) throw new ApiError("missing_token", "Sign in first: the playground is closed to guests.");
  if (named !== null && named !== guest_playground.organization_id) throw notFound();
  return guest_playground.organization_id;
}
