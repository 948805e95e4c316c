import { administrationAttacks } from "./administration.ts";
import type { Attack } from "./attack.ts";
import { bodyAttacks } from "./bodies.ts";
import { clientAttacks } from "./clients.ts";
import { connectionAttacks } from "./connections.ts";
import { creditAttacks } from "./credits.ts";
import { limitAttacks } from "./limits.ts";
import { neighbourAttacks } from "./neighbours.ts";
import { requestAttacks } from "./requests.ts";
import { upstreamAttacks } from "./upstreams.ts";
import { worstBodyAttacks } from "./worst-bodies.ts";

/** Every attack by its area. To add one, append it to the list of its area; a new area is a new file and a line here. */
export const ATTACKS: Readonly<Record<string, readonly Attack[]>> = {
  connections: connectionAttacks,
  bodies: bodyAttacks,
  requests: requestAttacks,
  credits: creditAttacks,
  clients: clientAttacks,
  upstreams: upstreamAttacks,
  neighbours: neighbourAttacks,
  "worst bodies": worstBodyAttacks,
  administration: administrationAttacks,
  // Last, because they exhaust the limits of an address.
  limits: limitAttacks,
};
