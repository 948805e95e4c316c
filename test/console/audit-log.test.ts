import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ACTION_OPTIONS } from "../../console/src/pages/audit-log/actions.ts";
import { operator as operatorOf } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, eventually, settled, signIn, visit } from "../support/console.ts";
import { ROOT } from "../support/documents.ts";
import { makeOrganization, type Organization, type RunningService, startService } from "../support/service.ts";

test("Each action that the documentation lists can be selected by a label in words, and no other.", () => {
  const [, section = ""] = readFileSync(join(ROOT, "docs/admin-api.md"), "utf8").split("\n## The audit log\n");
  const rows = (section.split("\n## ")[0] ?? "").split("\n").filter((line) => line.startsWith("| `"));
  const documented = rows.flatMap((row) => [...row.matchAll(/`([a-z_]+\.[a-z_]+)`/g)].map(([, action]) => action));
  expect(documented.length).toBeGreaterThan(25);
  expect(ACTION_OPTIONS.map(([action]) => action).toSorted()).toEqual([...new Set(documented)].toSorted());
  expect(ACTION_OPTIONS.filter(([, label]) => !/^[A-Z][a-z]/.test(label))).toEqual([]);
});

describe.skipIf(!hasBrowser)("the audit log", () => {
  let browser: Browser;
  let service: RunningService;
  let organization: Organization;
  let page: Page;

  beforeAll(async () => {
    [browser, service] = await Promise.all([launchBrowser(), startService()]);
    organization = await makeOrganization(service, "10");
    await operatorOf(service).call("PATCH", `/organizations/${organization.id}`, { name: "Later" });
    await operatorOf(service).call("PATCH", `/organizations/${organization.id}`, { name: "Latest" });
    ({ page } = await visit(browser, service));
    await signIn(page, await adminTokenOf(service));
  });
  afterAll(async () => {
    await browser?.close();
    await service?.end();
  });

  const rows = () => page.locator("tbody tr:not(.skeleton-row)");

  test("A change says in words what was before and what is after, and leads to its subject.", async () => {
    await page.goto("/audit");
    const row = rows().filter({ hasText: "Organization changed" }).first();
    await row.getByText("name: from Later to Latest").waitFor();
    await row.getByText("Operator: admin").waitFor();
    expect(await row.getByRole("cell").first().innerText()).toMatch(/^\w{3} \d+, \d{4},\s+\d\d:\d\d:\d\d UTC$/);
    await row.getByRole("link", { name: organization.id }).click();
    await page.getByRole("heading", { name: "Latest", level: 1 }).waitFor();
    await page.goBack();
  });

  test("The log is filtered by actor, subject, action, organization and time, in the address.", async () => {
    await settled(page);
    const before = await rows().count();
    const searching = page.getByRole("search", { name: "Filter the audit log" });
    await searching.getByLabel("Action").selectOption("organization.change");
    await eventually(() => rows().count()).toBe(2);
    await searching.getByLabel("Actor: name, ID or role").fill("nobody");
    await page.getByText("No matching entries").waitFor();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await eventually(() => rows().count()).toBe(before);
    await searching.getByLabel("ID of what was changed").fill(organization.tokenId);
    await eventually(() => rows().count()).toBe(1);
    expect(page.url()).toContain(`subject_id=${organization.tokenId}`);
    await page.goto(`/audit?organization_id=${organization.id}&actor=operator&action=organization.change&period=7`);
    await eventually(() => rows().count()).toBe(2);
    await page.goto("/audit?period=2020-01-01..2020-01-02");
    await page.getByText("No matching entries").waitFor();
  });

  test("What is shown is exported as CSV and as JSON Lines.", async () => {
    await page.goto(`/audit?action=organization.change&organization_id=${organization.id}`);
    for (const [name, file] of [
      ["Export CSV", "audit.csv"],
      ["Export JSON Lines", "audit.jsonl"],
    ]) {
      const downloading = page.waitForEvent("download");
      await page.getByRole("link", { name }).click();
      const download = await downloading;
      expect(download.suggestedFilename()).toBe(file);
      const lines = readFileSync(await download.path(), "utf8")
        .trim()
        .split("\n");
      expect(lines).toHaveLength(file === "audit.csv" ? 3 : 2);
      expect(lines.join()).toContain("Latest");
    }
  });
});
