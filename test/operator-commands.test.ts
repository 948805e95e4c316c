import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { bulkStatements } from "./support/bulk.ts";
import { runTollgate } from "./support/command-line.ts";
import { commandsDirectory } from "./support/commands.ts";

const { directory, json, line, run } = commandsDirectory();

test("a command changes the terms of a token that its flags name", async () => {
  const { id: org } = await json("org", "create", "Updates");
  const { id } = await json("token", "create", "--org", org, "--model", "a", "--expires", "30d", "--cap", "2");
  const update = ["token", "update", id];
  expect(await json(...update, "--name", "shop", "--scope", "usage:read", "--cap", "0.5")).toMatchObject({
    ...{ id, name: "shop", scopes: ["usage:read"], models: ["a"], expiresAt: expect.any(String) },
    ...{ cap: 0.5, creditsHeld: 0, creditsUsed: 0 },
  });
  const free = await json(...update, "--all-models", "--no-expires", "--no-cap");
  expect(free).toMatchObject({ name: "shop", models: null, expiresAt: null, cap: null, creditsUsed: null });
  expect(await json("token", "list", "--org", org)).toEqual([free]);
  expect((await run(...update, "--cap", "3", "--model", "b")).stdout).toMatch(
    /models +b\n.*\ncap +0 of 3, 0 held\npinned +none\n?$/,
  );
  // Flags that exclude or need each other are refused before the store is opened.
  const nothing = { stderr: "tollgate: Nothing to change: name at least one term.\n", store: null };
  expect(await run(...update)).toMatchObject(nothing);
  expect(await run("budget", "update", "bud_none", "--org", org)).toMatchObject(nothing);
  expect(await line(1, ...update, "--all-models", "--model", "b")).toContain("exclude each other");
  expect(await line(1, ...update, "--scope", "all")).toContain("scope is ");
  expect(await line(1, ...update, "--expires", "2020-01-01")).toContain("--expires is ");
  expect(await line(1, "token", "update", "tok_none", "--no-cap")).toContain("There is no token");
  await json("token", "revoke", id);
  expect(await line(1, ...update, "--no-cap")).toContain(`The token ${id} cannot be changed: it was revoked at `);
});

test("commands change the terms of an organization, and close it", async () => {
  const { id } = await json("org", "create", "Leaving", "--credits", "5");
  const update = ["org", "update", id];
  expect((await run(...update, "--note", "Pays late", "--contact", "ada@example.com")).stdout).toMatch(
    /price list +none\nexternal id +none\ncontacts +ada@example\.com\nnote +Pays late\n?$/,
  );
  expect(await line(1, ...update)).toContain("Nothing to change: name at least one term.");
  expect(await line(1, ...update, "--model", "m", "--all-models")).toContain("exclude each other");
  expect(await line(1, ...update, "--external-id", "a b")).toContain(
    '--external-id is "a b", but must be 1 to 200 ASCII',
  );
  expect(await line(1, ...update, "--price-list", "own")).toContain("the configuration has no priceLists");
  expect(await line(1, "org", "close", id, "--rest", "kept")).toContain(
    '--rest is "kept", but must be refunded or lapsed',
  );
  expect((await run("org", "close", id, "--rest", "refunded")).stdout).toMatch(/status +closed\navailable +0\n?$/);
  expect((await run("org", "show", id)).stdout).toMatch(/^status +closed$/m);
  const closed = `The organization ${id} is closed for good.`;
  expect(await line(1, "org", "resume", id)).toContain(closed);
  expect(await line(1, "credits", "grant", "1", "--org", id)).toContain(closed);
  expect(await line(1, "token", "create", "--org", id)).toContain(closed);
});

test("vouchers are printed as CSV, and a code is redeemed from standard input", { timeout: 180_000 }, async () => {
  const { id } = await json("org", "create", "Workshop");
  const { stdout } = await run("voucher", "create", "25", "--name", "May", "--count", "2", "--csv");
  expect(stdout).toMatch(/^code,credits,expires_at,batch\r\n(([0-9A-Z]{5}-){4}[0-9A-Z]{5},25,,May\r\n){2}$/);
  const [code = ""] = stdout.split("\n")[1]?.split(",") ?? [];
  const redeemed = await runTollgate(["voucher", "redeem", "-", "--org", id, "--json"], directory, {}, `${code}\n`);
  expect(redeemed).toMatchObject({ code: 0, stderr: "" });
  expect(JSON.parse(redeemed.stdout)).toMatchObject({ amount: 25, repeated: false });
  expect(await json("voucher", "redeem", code, "--org", id)).toMatchObject({ amount: 25, repeated: true });
  const [batch] = await json("voucher", "list");
  expect((await run("voucher", "revoke", batch.id)).stdout).toMatch(/^redeemed +1\nrevoked +1$/m);
  expect(await line(1, "voucher", "redeem", "7K3QX", "--org", id)).toContain("there is no such voucher");
});

test("a command says when the window of each budget ends", async () => {
  const { id } = await json("org", "create", "Windows");
  const create = ["budget", "create", "--org", id, "--amount", "2"];
  await json(...create, "--name", "users", "--window", "day", "--each", "metadata.user");
  const { id: life } = await json(...create, "--name", "life", "--window", "lifetime");
  const [users] = await json("budget", "list", "--org", id);
  expect(users).toMatchObject({ current: null, resetsAt: expect.stringMatching(/T00:00:00\.000Z$/) });
  expect((await run("budget", "list", "--org", id)).stdout).toMatch(/ by value +\S+T00:00:00\.000Z\n.* held +-\n?$/);
  expect((await run("budget", "show", users.id, "--org", id)).stdout).toContain(users.resetsAt);
  expect((await run("budget", "show", life, "--org", id)).stdout).toMatch(/^resets +-$/m);
});

test("a command prints what retention would remove, and another one removes it", async () => {
  const dataDir = join(directory, "retention");
  const place = ["--data-dir", dataDir, "--config", join(directory, "retention.yaml")];
  writeFileSync(join(directory, "retention.yaml"), "retention: { requestMonths: 2, auditDays: 5 }\n");
  await json("org", "create", "Old", "--credits", "10", ...place);
  const database = new DatabaseSync(join(dataDir, "tollgate.db"));
  const [{ id: org }] = database.prepare("select id from organization where kind = 'standard'").all() as [
    { id: string },
  ];
  const [{ id: grantId }] = database.prepare("select id from credit_grant").all() as [{ id: string }];
  const fromMs = Date.now() - 200 * 86_400_000;
  for (const text of bulkStatements("sqlite", {
    makesToken: true,
    organizationId: org,
    grantId,
    count: 300,
    fromMs,
    stepMs: 86_400_000 / 2,
  })) {
    database.exec(text);
  }
  const audit = database.prepare(
    "insert into audit_entry (id, made_at, actor_kind, action, checksum) values (?, 1, 'service', 'a', 0)",
  );
  for (let count = 0; count < 3; count += 1) audit.run(`00000000-0000-7000-8000-00000000000${count}`);
  const count = (table: string) => Number(database.prepare(`select count(*) as count from ${table}`).get()?.count);
  const dryRun = ["retention", "--dry-run", ...place];
  const planned = await json(...dryRun);
  const [requests, ...others] = planned;
  const now = new Date();
  const before = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 2, 1)).toISOString();
  expect(requests).toMatchObject({ kind: "requests", before });
  expect(requests.rows).toBeGreaterThan(200);
  expect(requests.rows).toBeLessThan(301);
  expect(others).toMatchObject([
    { kind: "audit_records", rows: 3 },
    { kind: "response_items", rows: 0 },
    { kind: "conversations", rows: 0 },
  ]);
  expect((await run(...dryRun)).stdout).toMatch(/^KIND +BEFORE +ROWS\nrequests +\d{4}-\S+ +\d+\naudit_records .* 3\n/);
  expect(await json("retention", "run", "--dry-run", ...place)).toMatchObject(
    planned.map(({ rows }: { rows: number }) => ({ rows })),
  );
  expect([count("request"), await line(1, "retention", ...place)]).toEqual([
    300,
    expect.stringContaining("Add --dry-run"),
  ]);
  const removed = await json("retention", "run", ...place);
  expect(removed).toMatchObject([
    { kind: "requests", rows: requests.rows, removed: requests.rows, left: 0 },
    { kind: "audit_records", removed: 3, left: 0 },
    { kind: "response_items", removed: 0, left: 0 },
    { kind: "conversations", removed: 0, left: 0 },
  ]);
  expect(count("request")).toBe(300 - requests.rows);
  expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  database.close();
});

test("deliveries are listed with their organization and their text", async () => {
  const place = ["--data-dir", join(directory, "deliveries")];
  const { id: organization } = await json("org", "create", "Warned", ...place);
  const target = "https://hooks.example.com/";
  const { id } = await json("receiver", "create", "--name", "Own", "--org", organization, "--target", target, ...place);
  await json("receiver", "test", id, ...place);
  const { stdout } = await run("receiver", "deliveries", "--receiver", id, ...place);
  expect(stdout).toMatch(/^ID +RECEIVER +ORGANIZATION +KIND +CREATED +STATE +ATTEMPTS +RESULT +TEXT\n/);
  expect(stdout).toMatch(new RegExp(`^dlv_\\S+ +${id} +${organization} .* This is a test event\\.$`, "m"));
});

test("a command refuses the receivers that the service refuses", async () => {
  const create = (target: string, ...words: string[]) => [
    "receiver",
    "create",
    "--name",
    "R",
    "--target",
    target,
    ...words,
  ];
  for (const target of [
    "http://hooks.example.com/",
    "https://127.0.0.1/",
    "http://localhost:8080/",
    "https://a:b@example.com/",
  ]) {
    expect(await line(1, ...create(target))).toMatch(
      /^tollgate: Invalid 'target': expected an? (https:\/\/ |public )?\w+/,
    );
  }
  for (const target of ["https://127.0.0.1/", "http://localhost:8080/"]) {
    expect(await line(1, ...create(target))).toContain(
      "warnings.allowPrivateAddresses also allows private ones, and http://",
    );
  }
  expect(await line(1, ...create("http://hooks.example.com/"))).not.toContain("allowPrivateAddresses");
  const mail = await line(1, ...create("ops@example.com"));
  expect(mail).toContain("expected an https:// address; to send mail, set the format to mail (--format mail)");
  expect(await json(...create("ops@example.com", "--format", "mail"))).toMatchObject({ format: "mail", secret: "" });
  expect(await json(...create("https://hooks.example.com/"))).toMatchObject({
    secret: expect.stringMatching(/^whsec_/),
  });

  const allowing = ["--config", join(directory, "private.yaml")];
  // The mail server's variable is not set: a command that sends no mail does not need it.
  writeFileSync(
    join(directory, "private.yaml"),
    `warnings: { allowPrivateAddresses: true, smtp: "\${SMTP_NOT_SET}" }\n`,
  );
  expect(await json(...create("http://127.0.0.1:8080/", ...allowing))).toMatchObject({
    target: "http://127.0.0.1:8080/",
  });
  writeFileSync(join(directory, "private.yaml"), "warnings: { allowPrivateAddresses: maybe }\n");
  expect(await line(1, ...create("https://hooks.example.com/", ...allowing))).toMatch(
    /^tollgate: \S+private\.yaml:1: warnings\.allowPrivateAddresses is "maybe", but must be true or false/,
  );
});
