import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, isoDay, isoTime } from "../src/api/time.ts";
import { CSV_FLAGS, type Injected, providerCsv } from "./support/provider-books.ts";
import { COUNT, FROM_MS, LONG, reconciliation, STEP_MS, STORES } from "./support/reconciliation.ts";

describe.for(STORES)("reconcile on %s", (kind) => {
  const { write, reconcile, command } = reconciliation(kind);
  const dayAt = isoTime(FROM_MS + DAY_MS);

  test("each of five kinds of differences is found by the ids of a CSV file, and nothing else", {
    timeout: LONG,
  }, async () => {
    const injected: Injected = { onlyService: [], onlyProvider: [], tokens: [], cost: [], model: [] };
    const period = { fromMs: FROM_MS, stepMs: STEP_MS };
    const file = write("books.csv", [...providerCsv(COUNT, period, injected)].join(""));
    const { code, differences, counts, matchedBy, totals, margins, from } = await reconcile(
      ...["--provider", "csv", "--upstream", "shop", file, ...CSV_FLAGS],
    );
    expect({ code, matchedBy, from }).toEqual({ code: 2, matchedBy: "id", from: isoTime(FROM_MS) });
    const by = (kind: string, ...fields: string[]) =>
      differences.filter(
        (one: { kind: string; fields: string[] }) => one.kind === kind && one.fields.join() === fields.join(),
      );
    expect(Object.fromEntries(Object.entries(injected).map(([name, ids]) => [name, ids.length]))).toEqual({
      ...{ onlyService: 8, onlyProvider: 8, tokens: 8, cost: 8, model: 8 },
    });
    expect(counts).toEqual({ both: COUNT - 32, onlyProvider: 8, onlyService: 8, different: 24 });
    expect(by("onlyService")).toHaveLength(8);
    expect(by("onlyProvider")).toHaveLength(8);
    expect(by("different", "output")).toHaveLength(8);
    expect(by("different", "cost")).toHaveLength(8);
    expect(by("different", "model")).toHaveLength(8);
    const numbers = (rows: { service: { place: string } }[]) =>
      rows
        .map(({ service }) => Number.parseInt(service.place.slice("request 0193a0ee-0000-7000-8000-".length), 16))
        .sort();
    const numbersOf = (ids: string[]) => ids.map((id) => Number(id.slice("gen-".length))).sort();
    expect(numbers(by("onlyService"))).toEqual(numbersOf(injected.onlyService));
    expect(numbers(by("different", "output"))).toEqual(numbersOf(injected.tokens));
    expect(totals.provider.requests).toBe(COUNT);
    expect(totals.service.requests).toBe(COUNT);
    expect(totals.provider.output - totals.service.output).toBe(
      injected.tokens.length +
        injected.onlyProvider.reduce((sum, id) => sum + 50 + (Number(id.split("-")[2]) % 5), 0) -
        injected.onlyService.reduce((sum, id) => sum + 50 + (Number(id.split("-")[1]) % 5), 0),
    );
    expect(margins).toEqual([
      {
        model: "m-1",
        requests: COUNT,
        charged: totals.service.charged,
        cost: totals.provider.cost,
        margin: expect.any(String),
      },
    ]);
    expect(Number(margins[0].margin)).toBeCloseTo(totals.service.charged / 100 - Number(totals.provider.cost), 6);
    const half = await reconcile(
      ...[
        "--provider",
        "csv",
        "--upstream",
        "shop",
        file,
        ...CSV_FLAGS,
        "--from",
        isoTime(FROM_MS),
        "--to",
        isoTime(FROM_MS + HOUR_MS),
      ],
    );
    expect(half.counts).toEqual({ both: 2_000 - 16, onlyProvider: 4, onlyService: 4, different: 12 });
  });

  test("logs of Bedrock and Vertex AI match request by request, also compressed", { timeout: LONG }, async () => {
    const at = (n: number) => isoTime(FROM_MS + DAY_MS + 60_000 * n + 700);
    const bedrock = (n: number, more: object = {}) => ({
      ...{ schemaType: "ModelInvocationLog", timestamp: at(n), modelId: "arn:aws:bedrock:eu-west-1::gpt-5-mini" },
      ...{ requestId: `aws-${n}`, requestMetadata: { tollgate_request_id: `req_o${n}` }, operation: "Converse" },
      input: { inputTokenCount: 100, cacheReadInputTokenCount: 40, cacheWriteInputTokenCount: 5 },
      output: { outputTokenCount: 10 },
      ...more,
    });
    // Within a JSON text, U+2028 ends no line.
    const lines = [
      bedrock(0, { inputBody: "a\u2028b" }),
      bedrock(1, { output: { outputTokenCount: 11 } }),
      bedrock(2),
      bedrock(2),
      bedrock(4),
    ];
    const failed = { ...bedrock(9), errorCode: "ThrottlingException", input: {}, output: {} };
    const text = [...lines, failed].map((line) => JSON.stringify(line)).join("\n");
    const words = ["--upstream", "openai", "--from", dayAt, "--to", isoTime(FROM_MS + DAY_MS + 5 * 60_000)];
    const log = await reconcile("--provider", "bedrock", write("log.json.gz", gzipSync(`${text}\n`)), ...words);
    expect(log).toMatchObject({
      code: 2,
      counts: { both: 2, onlyProvider: 0, onlyService: 1, different: 2 },
      badLines: [],
    });
    const kinds = log.differences.map(({ fields, service }: { fields: string[]; service: { place: string } }) => [
      service.place,
      fields,
    ]);
    expect(kinds).toEqual([
      [expect.stringMatching(/^request \S+001, complete, reported$/), ["output"]],
      [expect.stringMatching(/002, complete/), ["requests", "input", "cachedInput", "cacheWrite", "output", "lines"]],
      [expect.stringMatching(/003, complete/), []],
    ]);

    const metadata = {
      promptTokenCount: 140,
      cachedContentTokenCount: 40,
      candidatesTokenCount: 7,
      thoughtsTokenCount: 3,
    };
    const chunks = [{ responseId: "req_o0" }, { responseId: "req_o0", usageMetadata: metadata }];
    const row = (response: unknown) => ({
      ...{
        logging_time: at(0).replace("T", " ").replace("Z", "000 UTC"),
        model: "publishers/google/models/gpt-5-mini",
      },
      ...{ request_id: 1, api_method: "generateContent", full_response: response },
    });
    for (const response of [chunks[1], JSON.stringify(chunks[1]), chunks]) {
      const file = write("vertex.jsonl", `${JSON.stringify(row(response))}\n`);
      expect(await reconcile("--provider", "vertex", file, "--upstream", "openai")).toMatchObject({
        ...{ code: 0, counts: { both: 1, different: 0, onlyService: 0 }, badLines: [] },
      });
    }
  });

  test("a line that cannot be used is named with what is allowed, and nothing is written to the books", {
    timeout: LONG,
  }, async () => {
    const before = await command("ledger", "verify", "--json");
    const rows = [
      "id,time,model,input,output,cost,currency",
      "a,2026-10-05T10:00:00,m-1,1,1,1,USD",
      "b,2026-10-05,m-1,-1,1,,",
    ];
    const more = [
      "c,2026-10-05T10:00:00+02:00,m-1,1,1,0.1,JPY",
      "d,2026-10-05",
      ",2026-10-05,m-1,1,1,,",
      'e,2026-10-05,"m-1, large",,,,',
      'g,2026-10-05,"m-1,1,1,,',
      "h,2026-10-05,m-1,1,1,1000001,",
      `i,2026-10-05,"${"m".repeat(2 ** 24)}",1,1,,`,
    ];
    const file = write("bad.csv", [...rows, ...more, "f,2026-10-05,m-1\u001b[31m\u202e,1,2,0.1,USD"].join("\n"));
    const { code, badLines, counts } = await reconcile("--provider", "csv", "--upstream", "shop", file);
    expect({ code, counts }).toMatchObject({ code: 2, counts: { onlyProvider: 1 } });
    const time = "a time with its time zone, such as 2026-10-31T18:00:00Z, or a day";
    expect(badLines).toEqual([
      { place: "line 2", message: `time is "2026-10-05T10:00:00", but must be ${time}` },
      { place: "line 3", message: 'input is "-1", but must be an integer, 0 or more, of at most 12 digits' },
      { place: "line 4", message: 'currency is "JPY", but must be USD, in which costs are compared' },
      { place: "line 5", message: "it has 2 cells, but must have 7" },
      { place: "line 6", message: "id is missing, but must be an id" },
      { place: "line 7", message: "input is missing, but must be a count" },
      { place: "line 8", message: "its quotes do not match, or it is too long" },
      { place: "line 9", message: 'cost is "1000001", but must be at most 1000000 dollars' },
      { place: "line 10", message: "its quotes do not match, or it is too long" },
    ]);
    const text = await command("reconcile", "--provider", "csv", "--upstream", "shop", file);
    expect(text.code).toBe(2);
    expect(text.stdout).toContain("only provider  2026-10-05T00:00:00.000Z  m-1\uFFFD[31m\uFFFD  line 11\n");
    expect(text.stdout).not.toContain("\u001b");
    expect(text.stdout).toContain('line 4 cannot be used: currency is "JPY", but must be USD');
    expect(text.stdout).toContain(
      "matched by id: 0 in both, 1 only at the provider, 0 only in the service, 0 different.\n",
    );
    expect(await command("ledger", "verify", "--json")).toEqual(before);
  });

  test("margins are listed by month and by model, route or organization", { timeout: LONG }, async () => {
    const margins = async (...words: string[]) => {
      const { code, stdout } = await command("margins", "--from", isoDay(FROM_MS), ...words, "--json");
      expect(code).toBe(0);
      return JSON.parse(stdout);
    };
    const { data, ...rest } = await margins("--by", "route");
    expect(rest).toEqual({ from: isoDay(FROM_MS), to: isoDay(Date.now()), pendingDays: 0 });
    const sum = (of: Record<string, string>[], name: string) => of.reduce((total, row) => total + Number(row[name]), 0);
    const shop = data.filter(({ name }: { name: string }) => name === "shop/m-1");
    // The sum of the requests' costs, in dollars; a credit is a hundredth of one.
    const dollars = COUNT * 1e-4 + (COUNT * (COUNT - 1)) / 2 / 1e10;
    expect(sum(shop, "providerCost")).toBeCloseTo(dollars, 9);
    expect(sum(shop, "margin")).toBeCloseTo(sum(shop, "chargedWithCost") / 100 - dollars, 9);
    expect(sum(shop, "charged")).toBe(sum(shop, "chargedWithCost"));
    expect(shop[0].month).toMatch(/^\d{4}-\d{2}$/);
    const other = data.filter(({ name }: { name: string }) => name === "openai/gpt-5-mini");
    expect([sum(other, "charged"), sum(other, "chargedWithCost"), sum(other, "margin")]).toEqual([600, 0, 0]);
    const [{ name: organization }] = (await margins("--by", "organization")).data;
    const own = await margins("--by", "organization", "--org", organization);
    expect(own.data).not.toEqual([]);
    expect(own.data.every(({ name }: { name: string }) => name === organization)).toBe(true);
    const byModel = (await margins("--org", organization)).data;
    expect(sum(byModel, "charged")).toBe(sum(own.data, "charged"));
    const text = await command("margins", "--from", isoDay(FROM_MS));
    expect(text.stdout).toMatch(/^MONTH +MODEL +REQUESTS +CHARGED +CHARGED WITH COST +PROVIDER COST +MARGIN\n/);
    const { stderr } = await command("margins", "--org", "org_none");
    expect(stderr).toMatch(/^tollgate: There is no organization/);
  });
});
