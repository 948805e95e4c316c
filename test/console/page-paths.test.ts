import { expect, test } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { type Permission, permits } from "../../src/api/admin/roles.ts";

const READS: Record<(typeof PAGE_PATHS)[number]["path"], Permission> = {
  "/": "usage:read",
  "/organizations": "organizations:read",
  "/credits": "credits:read",
  "/vouchers": "vouchers:read",
  "/statements": "credits:read",
  "/tokens": "tokens:read",
  "/requests": "requests:read",
  "/models": "models:read",
  "/playground": "playground:use",
  "/warnings": "receivers:read",
  "/audit": "audit:read",
  "/docs": "service:read",
};

test.each(PAGE_PATHS)("The page $path is offered only to roles that may read what it shows.", ({ path, roles }) => {
  expect(roles.filter((role) => !permits(role, READS[path]))).toEqual([]);
});
