import { auditEndpoints } from "./audit.ts";
import { conversationEndpoints } from "./conversations.ts";
import { creditEndpoints } from "./credits.ts";
import type { AdminEndpoint } from "./endpoint.ts";
import { modelEndpoints } from "./models.ts";
import { organizationEndpoints } from "./organizations.ts";
import { overviewEndpoints } from "./overview.ts";
import { playgroundEndpoints } from "./playground.ts";
import { requestEndpoints } from "./requests.ts";
import { serviceEndpoints } from "./service.ts";
import { sessionEndpoints } from "./session.ts";
import { tokenEndpoints } from "./tokens.ts";

/** Every operation of the admin API. */
export const adminEndpoints: readonly AdminEndpoint[] = [
  ...serviceEndpoints,
  ...sessionEndpoints,
  ...overviewEndpoints,
  ...organizationEndpoints,
  ...creditEndpoints,
  ...tokenEndpoints,
  ...requestEndpoints,
  ...conversationEndpoints,
  ...modelEndpoints,
  ...playgroundEndpoints,
  ...auditEndpoints,
];
