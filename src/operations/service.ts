import type { AdminModelList, ResumedRoute } from "../api/admin/reports.ts";
import { pricesByClass } from "../credits/price.ts";
import { ApiError } from "../errors.ts";
import { operation } from "./operation.ts";

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
  summary: "List models with their facts and prices; operators also see their routes and the health of each",
  answer: { status: 200, description: "The models.", schema: (s) => s.AdminModelList },
  async handle({ gateway, clock }, { who, may }): Promise<AdminModelList> {
    // Imported here, because every command loads the list of operations.
    const [{ toApiModel }, { mayUse }, { reportRoutes }] = await Promise.all([
      import("../catalog/model.ts"),
      import("../gateway/plan.ts"),
      import("../gateway/route-health.ts"),
    ]);
    const health = gateway.circuits.health(clock());
    const models = who?.token?.models ?? null;
    const withRoutes = may("upstreams:read");
    const caller = { organizationKind: "standard", models: models && new Set(models) } as const;
    const usable = gateway.catalog.list().filter((model) => withRoutes || mayUse(caller, model));
    const data = usable.map((model) => ({
      ...toApiModel(model),
      playground: model.playground,
      prices: pricesByClass(model.prices),
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
    const [{ upstreamOf }, { toHealth }] = await Promise.all([
      import("../catalog/model.ts"),
      import("../gateway/route-health.ts"),
    ]);
    const isKnown = gateway.catalog.list().some(({ routes }) => routes.some((one) => upstreamOf(one) === route));
    if (!isKnown) {
      const message = "There is no route with this name. GET /admin/v1/models lists the routes of all models.";
      throw new ApiError("invalid_value", message, { param: "route" });
    }
    await audit.record(actor, { action: "route.resume", organizationId: null, subjectId: route });
    await resumptions.apply();
    const health = gateway.circuits.health(clock()).find(({ provider, model }) => `${provider}/${model}` === route);
    return { object: "route", route, health: toHealth(health) };
  },
});
