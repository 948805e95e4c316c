import { afterAll, beforeAll, expect, test } from "vitest";
import { operator, signIn } from "../support/admin.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  service = await startService();
  organization = await makeOrganization(service, "10");
});
afterAll(() => service?.end());

const MESSAGES = [{ role: "user", content: "hello" }];

interface Listed {
  data: { id: string; request_id: string }[];
}

/** Sends a request; returns the id of its answer, or null where it was refused, and its `x-request-id`. */
async function sent(path: string, body: object): Promise<{ answerId: string | null; accessId: string }> {
  const answer = await send(service, path, organization.token, body);
  const { id } = (await answer.json()) as { id?: string };
  return { answerId: id ?? null, accessId: answer.headers.get("x-request-id") ?? "" };
}

test.each([
  ["/v1/chat/completions", { messages: MESSAGES }, /^chatcmpl-/],
  ["/v1/completions", { prompt: "hello" }, /^cmpl-/],
  ["/v1/responses", { input: "hello" }, /^resp_/],
  ["/v1/messages", { messages: MESSAGES, max_tokens: 16 }, /^msg_/],
])("a request to %s is found by each of its ids", async (path, fields, pattern) => {
  const { answerId, accessId } = await sent(path, { model: "sandbox/echo", ...fields });
  expect(answerId).toMatch(pattern);
  const client = operator(service);
  const { body: listed } = await client.call<Listed>("GET", `/requests?request_id=${accessId}`);
  expect(listed.data).toMatchObject([{ request_id: accessId }]);
  const id = listed.data[0]?.id ?? "";
  for (const one of [id, answerId ?? "", accessId]) {
    expect((await client.call("GET", `/requests/${one}`)).body).toMatchObject({ id, request_id: accessId });
    const found = (path: string) => client.call<Listed>("GET", `${path}request_id=${one}`);
    expect((await found("/requests?")).body.data).toMatchObject([{ id }]);
    expect((await found("/requests?sort=charged&")).body.data).toMatchObject([{ id }]);
    expect((await found("/requests/sums?by=token&")).body.data).toMatchObject([{ requests: 1 }]);
  }
});

test("a refused request is found by its x-request-id", async () => {
  const { accessId } = await sent("/v1/chat/completions", { model: "none", messages: MESSAGES });
  const show = () => operator(service).call("GET", `/requests/${accessId}`);
  await expect.poll(async () => (await show()).body).toMatchObject({ status: "refused", failure: "model_not_found" });
});

test("a member finds no request of another organization by any id", async () => {
  const { answerId, accessId } = await sent("/v1/chat/completions", { model: "sandbox/echo", messages: MESSAGES });
  const other = await makeOrganization(service, "1");
  const { token } = await makeToken(service, other.id, { scopes: MEMBER_SCOPES });
  const member = await signIn(service, token);
  for (const id of [answerId, accessId, accessId.replace("req_", "chatcmpl-")]) {
    expect((await member.call("GET", `/requests/${id}`)).status).toBe(404);
    expect((await member.call<Listed>("GET", `/requests?request_id=${id}`)).body.data).toEqual([]);
  }
});

test("an id of no request is not found", async () => {
  for (const id of [
    "req_017f22e279b07fffbfffffffffffffff",
    "chatcmpl-017f22e279b07fffbfffffffffffffff",
    "req_x",
    "x",
  ]) {
    const client = operator(service);
    expect((await client.call("GET", `/requests/${id}`)).status).toBe(404);
    for (const path of ["/requests?", "/requests?sort=charged&", "/requests/sums?by=token&"]) {
      const { body } = await client.call("GET", `${path}request_id=${id}`);
      expect([path, body]).toEqual([path, { object: "list", data: [], next_cursor: null }]);
    }
  }
});
