import type { ResumedRoute } from "../api/admin/reports.ts";
import { ApiError } from "../errors.ts";
import { operation } from "./operation.ts";

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
