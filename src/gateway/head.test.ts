import { expect, test } from "vitest";
import { farewellHeaders } from "./head.ts";

test("a model on its way out says since when and until when", () => {
  const headers = farewellHeaders({ deprecatedSince: 1_795_219_200, shutdownDate: "2026-12-01" });
  expect(headers).toEqual({ deprecation: "@1795219200", sunset: "Tue, 01 Dec 2026 00:00:00 GMT" });
});

test("a model that stays says nothing", () => {
  expect(farewellHeaders({ deprecatedSince: null, shutdownDate: null })).toEqual({});
});
