import { BASE_PATH } from "../base-path.ts";

/** What the service refused or failed to do, in its own words. */
export class ApiFailure extends Error {
  readonly status: number;
  readonly code: string | null;
  /** The field that is wrong. */
  readonly param: string | null;
  readonly requestId: string | null;

  constructor(
    status: number,
    message: string,
    told: { code?: string; param?: string; requestId?: string | null } = {},
  ) {
    super(message);
    this.status = status;
    this.code = told.code ?? null;
    this.param = told.param ?? null;
    this.requestId = told.requestId ?? null;
  }
}

type Values = Record<string, string | number | null | undefined>;

/** A path with a query of what is set. */
export function withQuery(path: string, values: Values): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** A page of other sites can send no such header: with the cookie alone nothing is changed. */
const OWN_PAGE = { "x-tollgate-console": "1" };

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await answerOf(await fetch(`${BASE_PATH}${path}`, { headers: { accept: "application/json" }, signal }))) as T;
}

/** Longer than the service needs for any change. */
const SEND_TIMEOUT_MS = 60_000;

/** Sends a change. With an `idempotencyKey` the service carries out a repetition of a POST only once. */
export async function send<T>(
  method: "POST" | "PATCH" | "DELETE",
  path: string,
  body?: object,
  idempotencyKey?: string,
): Promise<T> {
  const withBody = method !== "DELETE";
  const answer = await fetch(`${BASE_PATH}${path}`, {
    method,
    headers: {
      ...OWN_PAGE,
      accept: "application/json",
      ...(withBody && { "content-type": "application/json" }),
      ...(idempotencyKey !== undefined && { "idempotency-key": idempotencyKey }),
    },
    body: withBody ? JSON.stringify(body ?? {}) : undefined,
    signal: AbortSignal.timeout(SEND_TIMEOUT_MS),
  });
  return (await answerOf(answer)) as T;
}

async function answerOf(answer: Response): Promise<unknown> {
  if (answer.status === 204) return undefined;
  if (!answer.ok) throw await failureOf(answer);
  return answer.json();
}

/** An answer that is no success, as an error; also where a proxy in between answered in a shape of its own. */
export async function failureOf(answer: Response): Promise<ApiFailure> {
  const requestId = answer.headers.get("x-request-id");
  const body = (await answer.json().catch(() => null)) as {
    error?: { message?: string; code?: string; param?: string };
  };
  const { message, code, param } = body?.error ?? {};
  const text = message ?? `The server responded with status ${answer.status}.`;
  return new ApiFailure(answer.status, text, { code: code ?? undefined, param: param ?? undefined, requestId });
}
