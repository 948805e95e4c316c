import { makeOrganization, type RunningService, startService } from "../../support/service.ts";
import type { Target } from "./attack.ts";

export interface AttackedService {
  service: RunningService;
  target: Required<Target>;
  end(): Promise<void>;
}

/** Starts a service with the default configuration, an organization with credits and an admin token. */
export async function startAttackedService(): Promise<AttackedService> {
  const service = await startService();
  const { token } = await makeOrganization(service, "1000000");
  const { token: adminToken } = await service.tollgate<{ token: string }>("admin", "token");
  return {
    service,
    target: { url: service.url, token, adminToken },
    end: async () => {
      await service.end();
    },
  };
}
