import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { clientAddressKey } from "./client-address.ts";

describe("clientAddressKey", () => {
  test.each([
    ["192.0.2.1", "192.0.2.1"],
    ["192.0.2.1:443", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::FFFF:c000:201", "192.0.2.1"],
    ["0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"],
    ["[::ffff:192.0.2.1]:443", "192.0.2.1"],
    ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:0DB8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"],
    ["[2001:db8:1:2::9]:8080", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["unknown", "unknown"],
    ["", ""],
  ])("counts %s as %s", (address, key) => {
    expect(clientAddressKey(address)).toBe(key);
  });

  test("gives two IPv6 addresses one key exactly when their first 64 bits are equal", () => {
    const group = fc.integer({ min: 0, max: 0xffff }).map((value) => value.toString(16));
    const half = fc.array(group, { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(half, half, half, (network, one, other) => {
        const key = clientAddressKey([...network, ...one].join(":"));
        // ::ffff:0:0/96 is IPv4.
        fc.pre(key.includes(":"));
        expect(clientAddressKey([...network, ...other].join(":"))).toBe(key);
        const isSame = network.join(":") === other.join(":");
        expect(clientAddressKey([...other, ...one].join(":")) === key).toBe(isSame);
      }),
    );
  });

  test("keeps the key of text that is not an address short", () => {
    expect(clientAddressKey("x".repeat(10_000))).toHaveLength(64);
  });
});
