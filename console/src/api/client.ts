import { BASE_PATH } from "../base-path.ts";

/** Error response of the service. */
export class ApiFailure extends Error {
  readonly status: number;
  readonly code: string | null;
  /** Name of the invalid field. */
  readonly param: string | null;
  readonly requestId: string | null;

  constructor(
    status: number,
    message: string,
    details: { code?: string; param?: string; requestId?: string | null } = {},
  ) {
    super(message);
    this.status = status;
    this.code = details.code ?? null;
    this.param = details.param ?? null;
    this.requestId = details.requestId ?? null;
  }
}

type Values = Record<string, string | number | null | undefined>;

/** Appends the values that are set to a path, as its query string. */
export function withQuery(path: string, values: Values): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** Required for every change. Pages of other sites cannot send this header, so the cookie alone changes nothing. */
const OWN_PAGE = { "x-tollgate-console": "1" };

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await answerOf(await fetch(`${BASE_PATH}${path}`, { headers: { accept: "application/json" }, signal }))) as T;
}

/** Longer than any change takes. */
const SEND_TIMEOUT_MS = 60_000;

/** Sends a change. With an `idempotencyKey`, the service carries out a retried POST only once. */
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

/** Converts an unsuccessful response into an error, including responses of proxies, which have no error document. */
export async function failureOf(answer: Response): Promise<ApiFailure> {
  const requestId = answer.headers.get("x-request-id");
  const body = (await answer.json().catch(() => null)) as {
    error?: { message?: string; code?: string; param?: string };
  };
  const { message, code, param } = body?.error ?? {};
  const text = message ?? `The server responded with status ${answer.status}.`;
  return new ApiFailure(answer.status, text, { code: code ?? undefined, param: param ?? undefined, requestId });
}
