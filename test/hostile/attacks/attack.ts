import assert from "node:assert/strict";
import { MEMBER_SCOPES } from "../../support/service.ts";

/** A running service under attack, given by its address, and the credentials that the attacker has. */
export interface Target {
  /** Without a slash at the end: `http://127.0.0.1:8484`. */
  url: string;
  /** An access token of an organization with credits. */
  token?: string;
  adminToken?: string;
  /** A model whose provider answers with the status that the message asks for, such as `status 429 retry-after 30`. */
  fragileModel?: string;
  /** A model with the route of the fragile one, and another route that always answers. */
  pairModel?: string;
  /** A model whose provider answers prompts of any length from a thread of its own. */
  longModel?: string;
  embeddingModel?: string;
}

/** Credentials that an attacker needs. */
export type Needs = "nothing" | "token" | "admin token";

/** One network attack. It opens a bounded number of connections and ends within a minute. */
export interface Attack {
  /** A full sentence with the expected behavior. */
  title: string;
  needs: Needs;
  /** Parts of the target that the attack needs, apart from the attacker's credentials. */
  alsoNeeds?: readonly Exclude<keyof Target, "url" | "token">[];
  /** Rejects if the title does not hold. Leaves the service usable for the next attacks. */
  play(target: Target): Promise<void>;
}

/** The header that authenticates as the holder of a credential of the target. */
export function authorization(target: Target, needs: Exclude<Needs, "nothing">): { authorization: string } {
  return { authorization: `Bearer ${required(target, needs === "token" ? "token" : "adminToken")}` };
}

/** Returns a part of the target, which the attack has stated to need. */
export function required(target: Target, name: keyof Target): string {
  const value = target[name];
  assert.ok(value !== undefined, `This attack needs the ${name} of the target.`);
  return value;
}

/** Sends a JSON body; a string or bytes are sent as they are. */
export function post(
  { url }: Target,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
}

/** Asserts that an answer is the error envelope with this status and code, and reads its message. */
export async function assertRefused(answer: Response, status: number, code: string): Promise<string> {
  const text = await answer.text();
  assert.equal(answer.status, status, text.slice(0, 300));
  const { error } = JSON.parse(text) as { error: { code: string; message: string } };
  assert.equal(error.code, code);
  return error.message;
}

/** A customer that an attack makes for itself, so that nothing of earlier attacks is left: no open circuit, no spent limit. */
export interface Customer {
  organizationId: string;
  token: string;
}

export interface CustomerTerms {
  credits?: number;
  limits?: object;
  keepsConversations?: boolean;
}

/** Makes an organization with credits and a token, whose holder can sign in to the console. */
export async function makeCustomer(target: Target, terms: CustomerTerms = {}): Promise<Customer> {
  const { credits = 1_000, limits = null, keepsConversations } = terms;
  const { id: organizationId } = await operate(target, "POST", "/organizations", { name: "Attack", limits });
  await operate(target, "POST", `/organizations/${organizationId}/grants`, { amount: credits });
  if (keepsConversations !== undefined) {
    await operate(target, "PATCH", `/organizations/${organizationId}`, { keeps_conversations: keepsConversations });
  }
  const token = { organization_id: organizationId, name: "attack", scopes: MEMBER_SCOPES };
  const { secret } = await operate(target, "POST", "/tokens", token);
  return { organizationId, token: secret };
}

/** Calls the admin API as the operator, and asserts that the call succeeds. */
export async function operate<Answer = { id: string; secret: string }>(
  target: Target,
  method: "GET" | "POST" | "PATCH",
  path: string,
  body?: object,
): Promise<Answer> {
  const answer = await fetch(`${target.url}/admin/v1${path}`, {
    method,
    headers: { "content-type": "application/json", ...authorization(target, "admin token") },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path} was answered ${answer.status}: ${text.slice(0, 300)}`);
  return JSON.parse(text) as Answer;
}

/** The first route of a model, and the end of its pause. */
export async function firstRouteOf(
  target: Target,
  model: string,
): Promise<{ route: string; pausedUntil: string | null }> {
  const { data } = await operate<{ data: ModelWithRoutes[] }>(target, "GET", "/models");
  const [first] = data.find(({ id }) => id === model)?.routes ?? [];
  assert.ok(first !== undefined, `The model ${model} has no route.`);
  return { route: first.route, pausedUntil: first.health?.limited_until ?? null };
}

interface ModelWithRoutes {
  id: string;
  routes: { route: string; health: { limited_until: string | null } | null }[];
}
