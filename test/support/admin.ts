import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { RunningService } from "./service.ts";

export interface Answer<Body = Record<string, unknown>> {
  status: number;
  body: Body;
  headers: Headers;
}

/** Calls the admin API as a script does, with an admin token, or as a browser does, with a session. */
export class AdminClient {
  readonly #service: Pick<RunningService, "url">;
  readonly headers: Record<string, string>;

  constructor(service: Pick<RunningService, "url">, headers: Record<string, string>) {
    this.#service = service;
    this.headers = headers;
  }

  async call<Body = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer<Body>> {
    const answer = await fetch(`${this.#service.url}/admin/v1${path}`, {
      method,
      headers: { ...this.headers, ...(body !== undefined && { "content-type": "application/json" }), ...headers },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    const isJson = /^application\/json\b/.test(answer.headers.get("content-type") ?? "");
    return { status: answer.status, body: (isJson ? JSON.parse(text) : text) as Body, headers: answer.headers };
  }
}

/** The admin token that a service without a terminal wrote to its data directory on its first start. */
export function firstAdminToken({ dataDir }: Pick<RunningService, "dataDir">): string {
  return readFileSync(join(dataDir, "admin-token"), "utf8").trim();
}

/** The access token that a service without a terminal wrote to its data directory on its first start. */
export function firstToken({ dataDir }: Pick<RunningService, "dataDir">): string {
  return readFileSync(join(dataDir, "access-token"), "utf8").trim();
}

/** Headers of the console's own pages, without a session. */
export const FROM_CONSOLE = { "x-tollgate-console": "1" };

export function operator(service: RunningService): AdminClient {
  return new AdminClient(service, { authorization: `Bearer ${firstAdminToken(service)}` });
}

/** Signs in as a browser does; the session's cookie goes with every call. */
export async function signIn(service: RunningService, token: string): Promise<AdminClient> {
  const answer = await new AdminClient(service, FROM_CONSOLE).call("POST", "/session", { token });
  if (answer.status !== 200) throw new Error(`Sign-in was answered with ${JSON.stringify(answer.body)}`);
  return new AdminClient(service, { ...FROM_CONSOLE, cookie: cookieOf(answer) });
}

/** Name and value of the cookie that an answer sets. */
export function cookieOf({ headers }: Pick<Answer, "headers">): string {
  return headers.get("set-cookie")?.split(";")[0] ?? "";
}
