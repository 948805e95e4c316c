import type { FastifyReply } from "fastify";
import { expect, test } from "vitest";
import { ApiError } from "../errors.ts";
import { sendError } from "./errors.ts";

interface Asked {
  method: string;
  url: string;
  isHeld?: boolean;
  headers?: Record<string, string>;
}

/** Returns the status and the headers that a request gets with an error. */
function answered(
  { method, url, isHeld = false, headers = { "x-tollgate-retry": "elsewhere" } }: Asked,
  error: ApiError,
) {
  const sent: { status?: number; headers?: object } = {};
  const settlement = isHeld ? Promise.resolve(undefined) : null;
  const reply = {
    request: {
      method,
      url,
      settlement,
      headers,
      id: "req",
      raw: { complete: true },
      routeOptions: { url, config: {} },
    },
    code: (status: number) => Object.assign(sent, { status }) && reply,
    headers: (fields: object) => Object.assign(sent, { headers: fields }) && reply,
    send: () => reply,
  };
  sendError(reply as unknown as FastifyReply, error);
  return sent;
}

const unavailable = new ApiError("store_unavailable");
const COMPLETION = { method: "POST", url: "/v1/chat/completions" };

test.each<[string, Asked]>([
  ["a completion without a hold", COMPLETION],
  ["a list", { method: "GET", url: "/admin/v1/tokens" }],
])("a proxy may repeat %s elsewhere if the store is unavailable, and other clients later", (_, asked) => {
  expect(answered(asked, unavailable)).toEqual({ status: 421, headers: { "retry-after": "1" } });
  for (const retry of ["", "yes"]) {
    const headers = { "x-tollgate-retry": retry };
    expect(answered({ ...asked, headers }, unavailable)).toEqual({ status: 503, headers: { "retry-after": "1" } });
  }
});

test.each<[string, Asked, ApiError]>([
  ["a completion whose provider may have been called", { ...COMPLETION, isHeld: true }, unavailable],
  ["a change that may be committed", { method: "POST", url: "/admin/v1/organizations" }, unavailable],
  ["a deletion", { method: "DELETE", url: "/v1/responses/*" }, unavailable],
  ["a completion that a provider has failed", COMPLETION, new ApiError("upstream_unavailable")],
])("a proxy is not told to repeat %s", (_, asked, error) => {
  expect(answered(asked, error)).toEqual({ status: 503, headers: {} });
});
