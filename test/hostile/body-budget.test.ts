import { afterAll, beforeAll, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { expectEnvelope } from "./envelope.ts";
import { closeOf, dial } from "./raw-http.ts";

const COMPLETIONS = "/v1/chat/completions";
const LIMIT_BYTES = 64 * 1024;
const HELD_BYTES = 40 * 1024;

let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  // The minimum budget is twice the limit of one body; one organization may use half of it.
  const server = { bodyLimitBytes: LIMIT_BYTES, bodiesInFlightBytes: 1_024 };
  const limits = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000 };
  service = await startService({ config: { server, limits } });
  organization = await makeOrganization(service, "100");
});

afterAll(() => service?.end());

const bodyOf = (bytes: number) => {
  const body = { model: "sandbox/echo", messages: [{ role: "user", content: "hi" }], user: "" };
  return JSON.stringify({ ...body, user: "u".repeat(bytes - JSON.stringify(body).length) });
};
const complete = (token: string, bytes: number) =>
  fetch(`${service.url}${COMPLETIONS}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: bodyOf(bytes),
  });

test("Bodies above the budget are rejected with 503, and other organizations are served.", async () => {
  const unfinished = dial(service.url);
  const head = [
    `POST ${COMPLETIONS} HTTP/1.1`,
    "host: localhost",
    `authorization: Bearer ${organization.token}`,
    "content-type: application/json",
    `content-length: ${HELD_BYTES + 1}`,
  ];
  const bytes = `${head.join("\r\n")}\r\n\r\n${bodyOf(HELD_BYTES)}`;
  await new Promise((resolve) => unfinished.write(bytes, resolve));
  // The service reads earlier data before it answers later requests.
  expect((await send(service, "/v1/models", organization.token)).status).toBe(200);
  const refused = await complete(organization.token, HELD_BYTES);
  expect(refused.headers.get("retry-after")).toBe("1");
  expect(expectEnvelope(refused.status, await refused.text())).toBe("overloaded");
  const other = await makeOrganization(service, "100");
  expect((await complete(other.token, HELD_BYTES)).status).toBe(200);
  unfinished.destroy();
  await closeOf(unfinished);
  await expect.poll(async () => (await complete(organization.token, HELD_BYTES)).status, { interval: 20 }).toBe(200);
});
