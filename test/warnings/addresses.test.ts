import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventOf } from "../../src/credits/warnings.ts";
import type { ReceiverRow } from "../../src/stores/queries/events.ts";
import { type WebhookOptions, webhookSender } from "../../src/warnings/webhook.ts";

const PUBLIC_ONLY =
  "expected a public https:// address; warnings.allowPrivateAddresses also allows private ones, and http:// on this machine, to receivers of the service";
const PUBLIC_NAME = "https://hooks.example.com/";

const server = createServer((_, response) => response.writeHead(204).end());
let loopback: string;

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  loopback = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** Sends an event to a target, whose name has this address, and returns the result. */
async function resultOf(target: string, address: string, allowsPrivate: boolean, organizationId: string | null = null) {
  const resolve = ((_name: string, _options: object, callback: (error: null, found: object[]) => void) => {
    callback(null, [{ address, family: address.includes(":") ? 6 : 4 }]);
  }) as unknown as NonNullable<WebhookOptions["resolve"]>;
  const sender = webhookSender({ allowsPrivate: () => allowsPrivate, clock: () => 1, resolve });
  const receiver: ReceiverRow = {
    ...{ id: "rcv_a", organizationId, name: "Ops", format: "webhook", target, kinds: null, secrets: [] },
    ...{ createdAtMs: 1, failingSinceMs: null, disabledAtMs: null },
  };
  const event = { ...eventOf("receiver.test", { organizationId, nowMs: 1, period: [] }, {}), isRouted: true };
  try {
    return (await sender.send(receiver, [{ event, text: "" }], new AbortController().signal)).result;
  } finally {
    await sender.close();
  }
}

test.each([
  "10.0.0.1",
  "127.0.0.1",
  "169.254.169.254",
  "::1",
  "fd00::1",
  "fe80::1",
  "::ffff:10.0.0.1",
  "::ffff:a00:1",
  "64:ff9b::a00:1",
  "2002:a00:1::",
  "100.64.0.1",
  "0.0.0.0",
])("the address %s is refused, by itself and behind a public name", async (address) => {
  const host = address.includes(":") ? `[${address}]` : address;
  expect(await resultOf(`https://${host}/`, address, false)).toBe(PUBLIC_ONLY);
  expect(await resultOf(PUBLIC_NAME, address, false)).toBe("the host has a private address");
});

test("a receiver of an organization never gets to a private address, also where those of the service may", async () => {
  const targets = ["https://127.0.0.1:1/", "https://hooks.example.com:1/", loopback];
  const resultsFor = (organizationId: string | null) =>
    Promise.all(targets.map((target) => resultOf(target, "127.0.0.1", true, organizationId)));
  const failed = expect.stringContaining("the connection failed");
  expect(await resultsFor(null)).toEqual([failed, failed, "HTTP 204"]);
  expect(await resultsFor("org_a")).toEqual([PUBLIC_ONLY, "the host has a private address", PUBLIC_ONLY]);
});

test("http is refused, also where private addresses are allowed, but for this machine", async () => {
  const expected = "expected an https:// address, or an http:// address on this machine";
  expect(await resultOf("http://example.com/", "192.0.2.1", true)).toBe(expected);
});
