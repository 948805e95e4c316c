import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { commandsDirectory } from "./support/commands.ts";

const { directory, json, line, run } = commandsDirectory();

test("commands create, list and show organizations", async () => {
  const made = await json("org", "create", "Research", "--credits", "100");
  expect(made).toEqual({
    id: expect.stringMatching(/^org_[0-9a-z]+$/),
    name: "Research",
    kind: "standard",
    creditsTotal: 100,
    creditsAvailable: 100,
  });
  expect(Object.keys(made)).toEqual(["id", "name", "kind", "creditsTotal", "creditsAvailable"]);
  const shown = await json("org", "show", made.id);
  expect(shown).toEqual({
    ...{ ...made, creditsUsed: 0, creditsHeld: 0 },
    ...{
      status: "active",
      limits: null,
      models: null,
      priceList: null,
      creditWarnings: null,
      daysLeft: null,
      createdAt: expect.any(String),
    },
    ...{ aliases: null, externalId: null, contacts: null, note: null, erasedAt: null },
    ...{ keepsConversations: false, keepsResponses: true, pausesAllowances: false },
    tokenBounds: { max_count: 0, models: null, max_cap: null, max_days: null },
  });
  const paused = { ...shown, status: "paused" };
  expect(await json("org", "pause", made.id)).toEqual({ ...paused, pausesAllowances: false });
  expect(await json("org", "pause", made.id, "--allowances")).toEqual({ ...paused, pausesAllowances: true });
  expect((await run("org", "show", made.id)).stdout).toMatch(/^status +paused, with its allowances$/m);
  expect(await json("org", "resume", made.id)).toEqual(shown);
  expect(await line(1, "org", "pause", "org_none")).toContain("There is no organization");
  const empty = await json("org", "create", "Sales");
  expect(empty).toMatchObject({ name: "Sales", creditsTotal: 0, creditsAvailable: 0 });
  expect(await json("org", "list")).toEqual([
    expect.objectContaining({ id: "org_playground", name: "Playground", kind: "playground", creditsTotal: 0 }),
    shown,
    expect.objectContaining(empty),
  ]);
  const { stdout } = await run("org", "list");
  expect(stdout).toMatch(/^ID +NAME +KIND +STATUS +CREDITS +AVAILABLE\n/);
  expect(stdout).toContain("Research");
  expect(await line(1, "org", "create", "")).toContain('name is "", but must be 1 to 200 characters');
  expect(await line(1, "org", "show", "org_none")).toMatch(
    /^tollgate: There is no organization with the id "org_none"\. To list the ids: \S+ \S+\/bin\/tollgate\.js org list$/,
  );
});

test("commands create, list, rotate and revoke tokens", async () => {
  const { id: org } = await json("org", "create", "Tokens");
  const made = await json("token", "create", "--org", org);
  const unlimited = {
    ...{ organizationId: org, organizationName: "Tokens", kind: "secret", status: "active", createdBy: null },
    ...{ models: null, limits: null, pinned: null, cap: null, creditsHeld: null, creditsUsed: null },
    ...{ createdAt: expect.any(String), expiresAt: null, lastUsedAt: null, revokedAt: null, successorId: null },
  };
  expect(made).toEqual({
    id: expect.stringMatching(/^tok_[0-9a-z]+$/),
    token: expect.stringMatching(/^sk-tg-[0-9A-Za-z]{49}$/),
    scopes: ["chat.completions:write", "models:read", "usage:read"],
    expiresAt: null,
  });
  expect(Object.keys(made)).toEqual(["id", "token", "scopes", "expiresAt"]);
  const before = Date.now();
  const words = ["--name", "ci", "--scope", "models:read", "--scope", "usage:read", "--expires", "30d", "--model", "a"];
  const narrow = await json("token", "create", "--org", org, ...words);
  expect(narrow.scopes).toEqual(["models:read", "usage:read"]);
  expect(Date.parse(narrow.expiresAt) - before - 30 * 86_400_000).toBeLessThan(60_000);
  const guest = await json("token", "create", "--org", "org_playground");
  for (const words of [["grant"], ["allowance", "create"]]) {
    const refused = await line(1, "credits", ...words, "1", "--org", "org_playground");
    expect(refused).toBe("tollgate: The playground organization holds no credits.");
  }
  expect(guest.scopes).toEqual(["chat.completions:write", "models:read", "usage:read"]);

  const rotated = await json("token", "rotate", made.id, "--overlap", "2h");
  expect(rotated).toMatchObject({ token: expect.stringMatching(/^sk-tg-/), scopes: made.scopes, expiresAt: null });
  expect(rotated.replaces).toEqual({ id: made.id, expiresAt: expect.stringMatching(/^\d{4}-/) });
  expect(await line(1, "token", "rotate", made.id)).toBe(
    `tollgate: The token ${made.id} was already rotated; its successor is ${rotated.id}. That token was never used; send \`replace: true\` (--replace) to create another in its place.`,
  );
  const replaced = await json("token", "rotate", made.id, "--replace");
  expect(replaced).toMatchObject({ scopes: made.scopes, expiresAt: null, replaces: rotated.replaces });
  expect(await json("token", "revoke", narrow.id)).toMatchObject({ id: narrow.id, repeated: false });
  expect(await json("token", "revoke", narrow.id)).toMatchObject({ id: narrow.id, repeated: true });

  const listed = await json("token", "list", "--org", org);
  expect(listed.map(({ id }: { id: string }) => id).sort()).toEqual(
    [made.id, narrow.id, rotated.id, replaced.id].sort(),
  );
  expect(listed.find(({ id }: { id: string }) => id === made.id)).toMatchObject({ successorId: replaced.id });
  expect(listed[1]).toEqual({
    ...unlimited,
    ...{
      id: narrow.id,
      callerId: narrow.id,
      name: "ci",
      prefix: narrow.token.slice(0, 12),
      expiresAt: narrow.expiresAt,
    },
    ...{ scopes: ["models:read", "usage:read"], models: ["a"] },
    ...{ status: "revoked", revokedAt: expect.stringMatching(/^\d{4}-/) },
  });
  expect(JSON.stringify(listed)).not.toContain(made.token);

  expect(await line(1, "token", "rotate", narrow.id)).toMatch(
    /^tollgate: The token tok_.* cannot be rotated: it was revoked at /,
  );
  expect(await line(1, "token", "revoke", "tok_none")).toContain("/bin/tollgate.js token list");
});

test("a command creates a token with a spending cap", async () => {
  const { id: org } = await json("org", "create", "Caps");
  const made = await json("token", "create", "--org", org, "--cap", "2.5");
  expect(made).toMatchObject({ cap: 2.5 });
  const capped = { cap: 2.5, creditsHeld: 0, creditsUsed: 0 };
  expect(await json("token", "list", "--org", org)).toMatchObject([{ id: made.id, ...capped }]);
  expect((await run("token", "list", "--org", org)).stdout).toContain("0 of 2.5, 0 held");
  // The token that replaces it shares the cap.
  const next = await json("token", "rotate", made.id);
  const listed = await json("token", "list", "--org", org);
  expect(listed.find(({ id }: { id: string }) => id === next.id)).toMatchObject(capped);
  expect(await line(1, "token", "create", "--org", org, "--cap", "-1")).toContain("--cap is ");
});

test("a command revokes credits", async () => {
  const { id: org } = await json("org", "create", "Revoked", "--credits", "10");
  const { id: grant } = await json("credits", "grant", "--org", org, "5");
  const revoke = ["credits", "revoke", "--org", org];
  expect(await line(1, ...revoke, "8", "--grant", grant)).toContain(
    `5 credits are left of ${grant}. Revoke at most that many, or all of them.`,
  );
  const first = await json(...revoke, "5", "--grant", grant, "--reference", "chargeback", "--note", "it bounced");
  const left = { creditsTotal: 10, creditsAvailable: 10, creditsUsed: 0, creditsHeld: 0 };
  const id = expect.stringMatching(/^adjustment_[0-9a-z]+$/);
  const told = { organizationId: org, amount: 5, reference: "chargeback", repeated: false };
  expect(first).toEqual({ id, ...told, ...left });
  const again = [...revoke, "5", "--grant", grant, "--reference", "chargeback"];
  expect(await json(...again)).toEqual({ ...first, repeated: true });
  expect(await line(1, ...revoke, "3", "--reference", "chargeback")).toMatch(
    /The reference "chargeback" was used with other terms: revocation adjustment_\w+ of 5 credits from grant_\w+, made at /,
  );
  expect(await line(1, ...revoke, "10.000001")).toContain(
    "Invalid 'amount': 10 credits are available. Revoke at most that many, or all of them.",
  );
  expect(await line(1, ...revoke)).toContain("AMOUNT is missing. State a number of credits, or --all");
  expect(await line(1, ...revoke, "1", "--all")).toContain("AMOUNT and --all exclude each other");
  expect(await json("credits", "balance", "--org", org)).toMatchObject({ creditsAvailable: 10 });
  expect(await json(...revoke, "--all")).toMatchObject({ amount: 10, creditsAvailable: 0 });
  expect(await json("credits", "balance", "--org", org)).toMatchObject({ creditsTotal: 0, creditsAvailable: 0 });
  expect(await line(1, ...revoke, "1", "--grant", "grant_none")).toContain(
    'There is no grant with the id "grant_none"',
  );
  expect(await line(1, "credits", "credit", "--org", org, "1")).toContain("at most 0 were charged");
  expect(await line(1, "credits", "credit", "--org", org, "1", "--completion", "chatcmpl-1")).toContain("--completion");
});

test("commands create, list and end an allowance", async () => {
  const { id: org } = await json("org", "create", "Allowance");
  const made = await json("credits", "allowance", "create", "7", "--org", org);
  const nextAt = expect.stringMatching(/^\d{4}-/);
  const terms = { organizationId: org, monthly: 7, lapses: true, reference: null, from: nextAt, nextAt, endedAt: null };
  const further = { amount: 7, beginsAt: nextAt, createdAt: nextAt };
  expect(made).toEqual({ id: expect.stringMatching(/^allowance_[0-9a-z]+$/), ...terms, ...further, repeated: false });
  expect(await json("credits", "balance", "--org", org)).toMatchObject({ creditsTotal: 7, creditsAvailable: 7 });
  const { entries } = await json("credits", "statement", "--org", org);
  const day = made.from.slice(0, 10);
  expect(entries).toMatchObject([{ reference: `allowance/${made.id}/${day}`, amount: 7 }]);
  const later = ["--from", "2100-01-31", "--keep", "--reference", "contract 7"];
  const other = await json("credits", "allowance", "create", "9", "--org", org, ...later);
  expect(other).toMatchObject({ lapses: false, nextAt: "2100-01-31T00:00:00.000Z" });
  expect(await json("credits", "allowance", "create", "9", "--org", org, ...later)).toEqual({
    ...other,
    repeated: true,
  });
  expect(await line(1, "credits", "allowance", "create", "8", "--org", org, ...later)).toContain(
    `allowance ${other.id} of 9 credits a month from 2100-01-31T00:00:00.000Z, of which the rest stays, made at `,
  );
  expect((await json("credits", "allowance", "list", "--org", org)).length).toBe(2);
  const ended = await json("credits", "allowance", "end", other.id);
  expect(ended).toMatchObject({ id: other.id, reference: "contract 7", endedAt: nextAt, repeated: false });
  expect(await json("credits", "allowance", "end", other.id)).toEqual({ ...ended, repeated: true });
  expect((await run("credits", "allowance", "list")).stdout).toMatch(/7 +expires +\d{4}.*\n?/);
  expect(await json("credits", "balance", "--org", org)).toMatchObject({ creditsTotal: 7, creditsAvailable: 7 });
  expect(await line(1, "credits", "allowance", "end", "allowance_none")).toContain(
    "/bin/tollgate.js credits allowance list",
  );
});

test("commands grant credits and show the balance and the statement", async () => {
  const { id: org } = await json("org", "create", "Credits");
  const grant = ["credits", "grant", "--org", org, "--reference", "invoice 7"];
  const first = await json(...grant, "12.000001", "--expires", "2100-01-01");
  expect(first).toEqual({
    id: expect.stringMatching(/^grant_[0-9a-z]+$/),
    organizationId: org,
    amount: 12.000001,
    expiresAt: "2100-01-01T00:00:00.000Z",
    reference: "invoice 7",
    repeated: false,
    ...{ creditsTotal: 12.000001, creditsAvailable: 12.000001, creditsUsed: 0, creditsHeld: 0 },
  });
  expect(await json(...grant, "12.000001", "--expires", "2100-01-01")).toEqual({ ...first, repeated: true });
  const granted = `grant ${first.id} of 12.000001 credits, expiring at 2100-01-01T00:00:00.000Z, made at `;
  expect(await line(1, ...grant, "50", "--expires", "2100-01-01")).toContain(granted);
  expect(await line(1, ...grant, "12.000001")).toContain(granted);
  await json("credits", "grant", "--org", org, "1");
  expect(await json("credits", "balance", "--org", org)).toEqual({
    organizationId: org,
    creditsTotal: 13.000001,
    creditsAvailable: 13.000001,
    creditsUsed: 0,
    creditsHeld: 0,
  });
  const statement = await json("credits", "statement", "--org", org);
  expect(statement).toMatchObject({ organizationId: org, creditsAvailable: 13.000001 });
  expect(statement.entries).toMatchObject([
    { kind: "grant", amount: 12.000001, id: first.id, reference: "invoice 7" },
    { kind: "grant", amount: 1, reference: null },
  ]);
  const { stdout } = await run("credits", "statement", "--org", org);
  expect(stdout).toContain("+12.000001");
  expect(stdout).toContain("13.000001 credits are available.");
  expect(await line(1, "credits", "balance", "--org", "org_none")).toContain("/bin/tollgate.js org list");
});

test("the books of a new store balance", async () => {
  expect(await json("ledger", "verify")).toMatchObject({ ok: true, violations: [], deadLetters: 0 });
  expect((await run("ledger", "verify")).stdout).toMatch(
    /^The books balance: \d+ organizations, 0 holds \(open and released ones have no charge\) and 0 charges checked\.$/m,
  );
});

test("books that do not balance are reported with the first violation and exit code 1", async () => {
  const dataDir = join(directory, "broken");
  const { id } = await json("org", "create", "Broken", "--credits", "5", "--data-dir", dataDir);
  const database = new DatabaseSync(join(dataDir, "tollgate.db"));
  database.exec(`UPDATE balance SET spent = 1, available = available - 1 WHERE organization_id = '${id}'`);
  database.close();
  const plain = await run("ledger", "verify", "--data-dir", dataDir);
  expect(plain.code).toBe(1);
  expect(plain.stdout).toBe("");
  expect(plain.stderr).toMatch(/^tollgate: the books do not balance: [^\n]+\n$/);
  expect(plain.stderr).toContain(id);
  const { code, stdout } = await run("ledger", "verify", "--data-dir", dataDir, "--json");
  expect(code).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({ ok: false, violations: [{ organizationId: id }, {}] });
});

test("a check of sound books exits with 1 while there are dead letters", async () => {
  const dataDir = join(directory, "dead-letters");
  await json("org", "create", "Sound", "--data-dir", dataDir);
  mkdirSync(join(dataDir, "dead-letters"));
  const file = join(dataDir, "dead-letters", "transitions.jsonl");
  writeFileSync(file, '{"id":1}\n{"id":2}\n');
  const { code, stdout, stderr } = await run("ledger", "verify", "--data-dir", dataDir);
  expect([code, stdout]).toEqual([1, expect.stringContaining("The books balance")]);
  expect(stderr).toBe(`tollgate: dead letters, which could not be booked: 2 (${file})\n`);
  const inJson = await run("ledger", "verify", "--data-dir", dataDir, "--json");
  expect([inJson.code, JSON.parse(inJson.stdout)]).toMatchObject([1, { ok: true, deadLetters: 2 }]);
});

test("commands list and check models", async () => {
  const models = await json("models", "list");
  expect(models.map((model: { id: string }) => model.id)).toEqual(
    expect.arrayContaining([
      "sandbox/echo",
      "sandbox/fault",
      "sandbox/image",
      "sandbox/speech",
      "sandbox/story",
      "sandbox/transcribe",
    ]),
  );
  const { stdout } = await run("models", "list");
  expect(stdout).toMatch(/sandbox\/image .* 0 +0 +images 0\.04 /);
  const checked = await json("models", "check");
  expect(checked.ok).toBe(true);
  expect(checked.routes).toContainEqual({
    model: "sandbox/echo",
    provider: "sandbox",
    upstreamModel: "echo",
    ok: true,
    milliseconds: expect.any(Number),
    error: null,
  });
});

test("ledger verify reports a hold that is open longer than the configured times allow", async () => {
  const dataDir = join(directory, "overdue");
  const { id } = await json("org", "create", "Overdue", "--credits", "1", "--data-dir", dataDir);
  const database = new DatabaseSync(join(dataDir, "tollgate.db"));
  const columns = "organization_id, id, token_id, amount, draws, owner, made_at, expires_at, details";
  const details = JSON.stringify(["req_1", "m", "p/m", null, null, ""]);
  const [expiredMs, now] = [Date.now() - 200_000, Date.now()];
  for (const [holdId, expiresAtMs] of [
    ["overdue", expiredMs],
    ["booked", now],
  ] as const) {
    const hold = database.prepare(`insert into hold (${columns}) values (?, ?, 'tok_1', 0, '[]', 'o', ?, ?, ?)`);
    hold.run(id, holdId, expiresAtMs, expiresAtMs, details);
  }
  database.close();
  const verify = async (ledger: string) => {
    const file = join(directory, "times.yaml");
    // A provider whose key is not set is of no importance for this command.
    writeFileSync(file, `ledger: ${ledger}\nproviders: [{ id: p, kind: openai, apiKey: "\${NOT_SET}" }]\n`);
    const { stdout, stderr } = await run("ledger", "verify", "--data-dir", dataDir, "--config", file, "--json");
    return stdout === "" ? stderr : JSON.parse(stdout).violations;
  };
  expect(await verify("{}")).toEqual([]);
  expect(await verify("{ recoverySeconds: 0 }")).toMatchObject([{ invariant: 8, holdId: "overdue" }]);
  expect(await verify("{ recoverySeconds: 0, holdSeconds: 180 }")).toEqual([]);
  expect(await verify("{ recoverySeconds: soon }")).toMatch(
    /^tollgate: \S+times\.yaml:1: ledger\.recoverySeconds is "soon"/,
  );
});

test("a route that does not answer fails the check", async () => {
  const file = join(directory, "dead.yaml");
  writeFileSync(
    file,
    `providers: [{ id: dead, kind: openai-compatible, baseUrl: "http://127.0.0.1:1/v1" }]
models: [{ id: m, routes: [{ provider: dead, model: x }], price: { input: 1, output: 1 } }]`,
  );
  const { code, stdout, stderr } = await run("models", "check", "--config", file, "--json");
  expect(code).toBe(1);
  expect(stderr).toMatch(/^tollgate: 1 of \d+ routes failed\n$/);
  expect(JSON.parse(stdout).routes).toContainEqual(
    expect.objectContaining({ model: "m", provider: "dead", ok: false }),
  );
});

test("a command checks the configuration", async () => {
  const file = join(directory, "own.yaml");
  writeFileSync(file, "server: { port: 9999 }\nmodels:\n  - { id: m, routes: [{ provider: sandbox, model: echo }] }\n");
  expect(await json("config", "check", "--config", file)).toMatchObject({
    ok: true,
    file,
    store: "sqlite",
    port: 9999,
    models: [
      "m",
      "sandbox/echo",
      "sandbox/embed",
      "sandbox/fault",
      "sandbox/image",
      "sandbox/speech",
      "sandbox/story",
      "sandbox/transcribe",
    ],
  });
  writeFileSync(file, "server:\n  prot: 9999\n");
  expect(await line(1, "config", "check", "--config", file)).toContain(
    `${file}:2: server.prot is not a known setting. Did you mean server.port?`,
  );
  writeFileSync(file, "models: [{ id: m, routes: [{ provider: p, model: x }], price: { input: 1, output: 1 } }]");
  expect(await line(1, "config", "check", "--config", file)).toMatch(/^tollgate: models\[0\]\.routes\[0\]/);
  writeFileSync(file, "providers: [{ id: p, kind: telepathy }]");
  expect(await line(1, "config", "check", "--config", file)).toMatch(/telepathy/);
});

test("the command in a message works when it is pasted", async () => {
  const dataDir = join(directory, "it's a folder");
  await json("org", "create", "Pasted", "--data-dir", dataDir);
  const message = await line(1, "token", "create", "--org", "org_none", "--data-dir", dataDir);
  const command = /To list the ids: (.+)$/.exec(message)?.[1] ?? "";
  // Neither Node nor the launcher needs to be on the PATH.
  const pasted = await promisify(execFile)("/bin/sh", ["-c", `${command} --json`], { cwd: directory, env: {} });
  expect(JSON.parse(pasted.stdout)).toContainEqual(expect.objectContaining({ name: "Pasted" }));
});

test("a usage error exits with 2 and prints one line with a hint", async () => {
  expect(await line(2, "org", "creat")).toBe(
    "tollgate: unknown command 'creat' (Did you mean create?); add --help for the usage",
  );
});

test("an unusable data directory is reported in one line", async () => {
  writeFileSync(join(directory, "file"), "");
  expect(await line(1, "org", "list", "--data-dir", join(directory, "file"))).toContain(
    "Cannot use the data directory",
  );
});
