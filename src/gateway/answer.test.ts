import { expect, test } from "vitest";
import { deprecationHeaders } from "./answer.ts";

test("The headers of a deprecated model name its deprecation and its shutdown.", () => {
  const headers = deprecationHeaders({ deprecatedSince: 1_795_219_200, shutdownDate: "2026-12-01" });
  expect(headers).toEqual({ deprecation: "@1795219200", sunset: "Tue, 01 Dec 2026 00:00:00 GMT" });
});

test("A model that is not deprecated adds no headers.", () => {
  expect(deprecationHeaders({ deprecatedSince: null, shutdownDate: null })).toEqual({});
});
