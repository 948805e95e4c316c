import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PAGE_PATHS } from "../../console/src/page-paths.ts";
import { type AdminClient, operator as operatorOf } from "../support/admin.ts";
import { hasBrowser, launchBrowser } from "../support/browser.ts";
import { adminTokenOf, problemsOf, settled, signIn, visit, WINDOWS } from "../support/console.ts";
import { ROOT } from "../support/documents.ts";
import {
  MEMBER_SCOPES,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { makeStatements } from "../support/statements.ts";
import { stripeSettings } from "../support/stripe.ts";
import { closeDialog, OPENINGS } from "./openings.ts";

type Address = (typeof PAGE_PATHS)[number];
type Pattern = Address["path"] | Extract<Address, { one: string }>["one"];
type Role = "operator" | "auditor" | "member";

const TABS = ["usage", "tokens", "budgets", "statement", "warnings", "settings"];
/** As many as a pattern has paths. */
const ROUNDS = Array.from({ length: 9 }, (_, round) => round);

/** Route patterns of all pages that a role can open. */
const patternsOf = (role: Role): Pattern[] =>
  PAGE_PATHS.filter(({ roles }) => (roles as readonly Role[]).includes(role)).flatMap((address) =>
    "one" in address ? [address.path, address.one] : [address.path],
  );

describe.skipIf(!hasBrowser)(
  "accessibility by the rules of axe, in both themes and forced colors, 1440, 900 and 360 pixels wide and at 200 %",
  { timeout: 1_200_000 },
  () => {
    let browser: Browser;
    let service: RunningService;
    let organization: Organization;
    let receiverId: string;
    let admin: string;
    let tokens: Record<Role, string>;
    /** Paths to open for each pattern: one with much content, one with little, and others. */
    let examples: Record<Pattern, string[]>;

    beforeAll(async () => {
      [browser, service] = await Promise.all([
        launchBrowser(),
        startService({
          config: {
            playground: { openToGuests: true },
            warnings: { allowPrivateAddresses: true },
            // Nothing is asked of Stripe.
            payments: { stripe: stripeSettings("http://127.0.0.1:9") },
          },
        }),
      ]);
      admin = await adminTokenOf(service);
      organization = await makeOrganization(service, "50", { name: "web app", scopes: MEMBER_SCOPES });
      const auditor = await service.tollgate<{ token: string }>("operator", "create", "Ada", "--role", "auditor");
      tokens = { operator: admin, auditor: auditor.token, member: organization.token };
      const filled = await fill(service, organization);
      receiverId = filled.receiverId;
      examples = {
        "/": ["/", "/?period=1&organization_id=org_playground"],
        "/organizations": ["/organizations", "/organizations?search=nobody"],
        "/organizations/:id": [
          `/organizations/${organization.id}`,
          "/organizations/org_unknown",
          ...TABS.map((tab) => `/organizations/${organization.id}?tab=${tab}`),
        ],
        "/credits": ["/credits"],
        "/vouchers": ["/vouchers"],
        "/statements": ["/statements", "/statements?organization_id=org_playground"],
        "/statements/:id": [`/statements/${filled.statementId}`, "/statements/none"],
        "/tokens": ["/tokens", "/tokens?search=none"],
        "/tokens/:id": [`/tokens/${organization.tokenId}`, "/tokens/tok_unknown"],
        "/requests": [
          `/requests?organization_id=${organization.id}`,
          "/requests?status=recovered&metadata_key=purpose&period=2026-01-01..2026-01-02",
          "/requests?sort=charged",
          ...["token", "hour", "budget", "metadata&metadata_key=purpose", "metadata"].map((by) => `/requests?by=${by}`),
        ],
        "/requests/:id": [`/requests/${filled.requestId}`, "/requests/unknown"],
        "/models": ["/models?compare=sandbox%2Fecho%2Csandbox%2Fstory", "/models?search=none"],
        "/models/*": ["/models/sandbox/echo"],
        "/playground": ["/playground"],
        "/warnings": ["/warnings", "/warnings?state=failed"],
        "/warnings/:id": [`/warnings/${receiverId}`, "/warnings/rcv_unknown"],
        "/audit": ["/audit"],
        "/docs": [
          "/docs",
          "/docs?task=messages",
          ...["createChatCompletion", "createToken", "none"].map((name) => `/docs?operation=${name}`),
        ],
      };
    });
    afterAll(async () => {
      await browser?.close();
      await service?.end();
    });

    /** Opens a page like a link does, without reloading the console, and expands its details. */
    async function show(page: Page, path: string): Promise<void> {
      await page.evaluate(`history.pushState(null, "", ${JSON.stringify(path)})`);
      await settled(page);
      await page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true");
    }

    test.each(["operator", "auditor", "member"] as const)("Every page that the %s can open passes.", async (role) => {
      const visitor = await visit(browser, service);
      await signIn(visitor.page, tokens[role]);
      const patterns = patternsOf(role);
      // The pages of other roles are those of the operator with fewer actions, which the first example of each shows.
      const rounds = role === "operator" ? ROUNDS : [0];
      const sizes =
        role === "operator" ? (["wide", "medium", "zoomed", "narrow"] as const) : (["wide", "narrow"] as const);
      const allSizes = ["wide", "wideDark", "wideForced", "medium", "zoomed", "narrow"] as const;
      const problems: string[] = [];
      // Never the same page twice in a row: the second would show the data of the first until its own is loaded.
      const paths = rounds.flatMap((round) => patterns.flatMap((pattern) => examples[pattern][round] ?? []));
      for (const [index, path] of paths.entries()) {
        await show(visitor.page, path);
        expect(await visitor.page.locator("h1").textContent(), path).not.toMatch(
          /^(Page not found|Page failed to load)$/,
        );
        const isFirst = role === "operator" && index < patterns.length;
        problems.push(...(await problemsOf(visitor, path, isFirst ? allSizes : sizes)));
      }
      await visitor.close();
      expect(problems).toEqual([]);
    });

    test("Every form and dialog passes, including its error messages.", async () => {
      const visitor = await visit(browser, service, { viewport: WINDOWS.wide });
      const { page } = visitor;
      await signIn(page, admin);
      const problems: string[] = [];
      for (const { path, file, open } of OPENINGS) {
        await page.setViewportSize(WINDOWS.wide);
        await show(page, path.replace(":id", organization.id).replace(":receiver", receiverId));
        await open(page);
        // Pages, and the dialogs of other tests, show the same building blocks in the other windows.
        problems.push(...(await problemsOf(visitor, `${path}, ${file}`, ["wide", "narrow"])));
        await closeDialog(page);
      }
      await visitor.close();
      expect(problems).toEqual([]);
    });

    test("The sign-in page and the playground of guests pass.", async () => {
      const visitor = await visit(browser, service);
      const { page } = visitor;
      await page.goto("/");
      await page.getByLabel("Token").fill("tg-admin-wrong");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").getByText("invalid_token").waitFor();
      const problems = await problemsOf(visitor, "signing in");
      await show(page, "/playground");
      await page.getByText("You are a guest").waitFor();
      await page.getByLabel("Model", { exact: true }).selectOption("sandbox/echo");
      await page
        .getByLabel("Message")
        .fill("A list:\n\n- `code`\n- [a link](https://example.com)\n\n```\nmore code\n```");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.getByText(/tokens out · 0 credits/).waitFor();
      await page.getByLabel("Message").fill("status 500");
      await page.getByLabel("Model", { exact: true }).selectOption("sandbox/fault");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.getByRole("alert").waitFor();
      problems.push(...(await problemsOf(visitor, "the playground")));
      await page.goto("/requests");
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      await visitor.close();
      expect(problems).toEqual([]);
    });

    test("The check finds low contrast in one theme, a missing name, and overflow.", async () => {
      const visitor = await visit(browser, service);
      await visitor.page.goto("/");
      await visitor.page.getByRole("heading", { name: "Sign in" }).waitFor();
      await visitor.page.evaluate(`
      document.querySelector("h1").style.color = "light-dark(black, #333)";
      document.querySelector("h1").style.width = "400px";
      document.querySelector("form").append(document.createElement("button"));
    `);
      const found = await problemsOf(visitor, "here");
      await visitor.page.evaluate(`
      const dialog = document.createElement("dialog");
      dialog.setAttribute("aria-label", "Test");
      dialog.append(document.querySelector("form button:last-child"));
      document.body.append(dialog);
      dialog.showModal();
    `);
      const inDialog = await problemsOf(visitor, "here", ["wide"]);
      const problems = found.map((problem) =>
        problem
          .split(": ")
          .slice(1, 3)
          .join(": ")
          .replace(/ by \d+$/, ""),
      );
      await visitor.close();
      expect(inDialog).toEqual(["here: light, wide: button-name: dialog > button"]);
      expect(new Set(problems)).toEqual(
        new Set([
          "light, wide: button-name",
          "dark, wideDark: color-contrast",
          "narrow: wider than the window",
          "dark, narrow: button-name",
          "dark, narrow: color-contrast",
        ]),
      );
    });

    test("Every source with a dialog or a picker is covered.", () => {
      const sources = join(ROOT, "console", "src");
      const files = readdirSync(sources, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".tsx"));
      const opening = files.filter((path) => DIALOG.test(readFileSync(join(sources, path), "utf8")));
      expect(opening.length).toBeGreaterThan(10);
      const known = new Set([...OPENINGS.map(({ file }) => file), ...ELSEWHERE]);
      expect(opening.filter((path) => !known.has(path))).toEqual([]);
    });
  },
);

const DIALOG = /<(Dialog|DialogForm|BookingForm|Picker)\b/;
/** Building blocks of other dialogs, dialogs with a path of their own, and that of trouble.test.ts. */
const ELSEWHERE = ["ui/dialog.tsx", "shell/session-ended.tsx", "pages/models/details.tsx"];

/** Creates data of every kind for the pages. Returns the IDs of a request and of a receiver. */
async function fill(service: RunningService, { id, token }: Organization) {
  const admin = operatorOf(service);
  const path = `/organizations/${id}`;
  await admin.call("PATCH", path, { keeps_conversations: true });
  const soon = new Date(Date.now() + 86_400_000).toISOString();
  await admin.call("POST", `${path}/grants`, { amount: 5, reference: "not yet", effective_at: soon });
  await admin.call("POST", `${path}/grants`, { amount: 5, reference: "a long reference of many words ".repeat(5) });
  await admin.call("POST", `${path}/revocations`, { amount: 1, note: "by mistake" });
  const { body: vouchers } = await admin.call("POST", "/voucher-batches", { name: "Workshop", count: 2, amount: 5 });
  await admin.call("POST", `${path}/redemptions`, { code: (vouchers.codes as string[])[0] });
  await admin.call("POST", `${path}/allowances`, { amount: 10 });
  const { body: ended } = await admin.call("POST", `${path}/allowances`, { amount: 3 });
  await admin.call("DELETE", `${path}/allowances/${ended.id}`);
  const limits = { requests_per_minute: 60 };
  const draft = { organization_id: id, name: "capped", cap: 2, models: ["sandbox/echo"], limits, expires_at: soon };
  const { body: capped } = await admin.call("POST", "/tokens", draft);
  const { body: old } = await admin.call("POST", "/tokens", { organization_id: id, name: "old" });
  await admin.call("POST", `/tokens/${old.id}/revoke`);
  await admin.call("POST", "/organizations", { name: "A name of one long word: Donaudampfschifffahrtsgesellschaft" });
  const selector = { tokens: [capped.id], models: ["sandbox/*"], metadata: { team: ["red", "blue"] } };
  await admin.call("POST", `${path}/budgets`, { name: "web team", selector, window: "week", amount: 5 });
  await admin.call("POST", `${path}/budgets`, { name: "every user", each: "metadata.user", window: "day", amount: 2 });
  const { body: total } = await admin.call("POST", `${path}/budgets`, { name: "all", window: "lifetime", amount: 9 });
  for (const content of ["Good morning", "reset after 3 tokens", "status 500"]) {
    for (const model of ["sandbox/echo", "sandbox/fault"]) {
      const body = { model, messages: [{ role: "user", content }], max_tokens: 40, metadata: { purpose: "pages" } };
      await (await send(service, "/v1/chat/completions", token, body)).text();
    }
  }
  await admin.call("PATCH", `${path}/budgets/${total.id}`, { amount: 0.000001 });
  const { body } = await admin.call<{ data: { id: string }[] }>("GET", "/requests?model=sandbox/fault");
  const other = await makeOrganization(service, "7", { name: "Printed" });
  const question = { model: "sandbox/echo", messages: [{ role: "user", content: "Good morning" }] };
  await (await send(service, "/v1/chat/completions", other.token, question)).text();
  const [statement] = (await makeStatements(service, other.id)).slice(-1);
  const ids = { requestId: body.data[0]?.id ?? "", statementId: statement?.id ?? "" };
  return { ...ids, receiverId: await makeReceivers(admin, id) };
}

/** Creates receivers with deliveries that fail, because nothing listens at the address. Returns the ID of one. */
async function makeReceivers(admin: AdminClient, organization_id: string): Promise<string> {
  const target = "https://127.0.0.1:1/a/long/path/without/an/end/with/a/secret/of/the/receiver";
  const kinds = ["credits.low", "budget.used", "token.expiring", "price.change"];
  const service = { name: "Operations", format: "webhook", target };
  const chat = { name: "Chat", format: "slack", target: target.replace("127.0.0.1:1", "chat.example.com") };
  await admin.call("POST", "/receivers", { ...chat, kinds, organization_id });
  const { body } = await admin.call("POST", "/receivers", service);
  const { body: off } = await admin.call("POST", "/receivers", { ...service, name: "Switched off" });
  await admin.call("PATCH", `/receivers/${off.id}`, { enabled: false });
  await admin.call("POST", `/receivers/${body.id}/test`);
  return String(body.id);
}
