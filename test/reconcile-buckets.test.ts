import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline, Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, isoTime } from "../src/api/time.ts";
import { FROM_MS, LONG, reconciliation, STORES } from "./support/reconciliation.ts";

describe.for(STORES)("reconcile on %s", (kind) => {
  const { write, reconcile, command, environment } = reconciliation(kind);

  /** Usage of an hour as OpenAI reports it, which includes what was cached. */
  const hour = (index: number, requests: number, more: object = {}) => {
    const startMs = FROM_MS + DAY_MS + index * HOUR_MS;
    const result = {
      ...{ object: "organization.usage.completions.result", model: "gpt-5-mini-2025-08-07", api_key_id: "key_1" },
      ...{ num_model_requests: requests, input_tokens: 145 * requests, input_cached_tokens: 40 * requests },
      ...{ input_cache_write_tokens: 5 * requests, output_tokens: 10 * requests, ...more },
    };
    const times = { object: "bucket", start_time: startMs / 1_000, end_time: (startMs + HOUR_MS) / 1_000 };
    return { ...times, results: requests === 0 ? [] : [result] };
  };
  const page = (...data: object[]) => ({ object: "page", data, has_more: false, next_page: null });
  const ofOpenAi = ["--provider", "openai"];
  const dayAt = isoTime(FROM_MS + DAY_MS);

  test("buckets of OpenAI are compared by model and hour, and a request may be in the hour in which it ended", {
    timeout: LONG,
  }, async () => {
    const all = [hour(0, 60), hour(1, 60), hour(2, 60), hour(3, 59), hour(4, 61)];
    const same = await reconcile(...ofOpenAi, write("same.json", JSON.stringify(page(...all))));
    expect(same).toMatchObject({ code: 0, matchedBy: "bucket", differences: [], counts: { both: 5 }, from: dayAt });
    const totals = { requests: 300, input: 30_000, cachedInput: 12_000, cacheWrite: 1_500, output: 3_000 };
    expect([same.totals.provider, same.totals.service]).toMatchObject([
      { ...totals, cost: null },
      { ...totals, charged: 600 },
    ]);

    const other = { ...hour(0, 1).results[0], model: "gpt-5" };
    const first = { ...hour(0, 60), results: [...hour(0, 60).results, other] };
    const pages = [page(first, hour(1, 60, { output_tokens: 1_100 })), page(hour(2, 0), hour(3, 57), hour(4, 62))];
    const { code, differences, counts } = await reconcile(...ofOpenAi, write("other.json", JSON.stringify(pages)));
    expect({ code, counts }).toEqual({ code: 2, counts: { both: 2, onlyProvider: 1, onlyService: 1, different: 2 } });
    expect(differences).toMatchObject([
      {
        kind: "onlyProvider",
        time: dayAt,
        provider: { model: "gpt-5", place: "[0].data[0].results[1]" },
        service: null,
      },
      {
        kind: "different",
        fields: ["output"],
        provider: { output: 1_100 },
        service: { output: 600, model: "gpt-5-mini" },
      },
      { kind: "onlyService", provider: null, service: { requests: 60, output: 600 } },
      {
        kind: "different",
        fields: ["requests", "input", "cachedInput", "cacheWrite", "output"],
        provider: { requests: 57 },
      },
    ]);
  });

  test("a period leaves out the buckets that it cuts, and --key those of other keys", { timeout: LONG }, async () => {
    const file = write("keys.json", JSON.stringify(page(hour(0, 60), hour(1, 60), hour(2, 9))));
    const period = [
      "--from",
      isoTime(FROM_MS + DAY_MS + HOUR_MS / 2),
      "--to",
      isoTime(FROM_MS + DAY_MS + 2.5 * HOUR_MS),
    ];
    expect(await reconcile(...ofOpenAi, file, ...period)).toMatchObject({
      code: 0,
      counts: { both: 1 },
      cutBuckets: 2,
    });
    expect(await reconcile(...ofOpenAi, file, ...period, "--key", "key_2")).toMatchObject({
      ...{ code: 2, counts: { both: 0, onlyService: 1 } },
    });
    const named = write("named.json", JSON.stringify(page(hour(0, 60, { model: "deployment-7" }))));
    const names = ["--model", "deployment-7=gpt-5-mini"];
    expect(await reconcile(...ofOpenAi, named, ...names)).toMatchObject({ code: 0, counts: { both: 1 } });
  });

  test("costs of a day give the margin, and other currencies are named", { timeout: LONG }, async () => {
    const amount = { value: 2.5e-1, currency: "usd" };
    const times = { start_time: (FROM_MS + DAY_MS) / 1_000, end_time: (FROM_MS + 2 * DAY_MS) / 1_000 };
    const costs = page({ ...times, results: [{ amount, line_item: "a" }, { amount: { value: 1, currency: "eur" } }] });
    const { code, margins, badLines, counts } = await reconcile(
      ...ofOpenAi,
      write("costs.json", JSON.stringify(costs)),
    );
    expect({ code, counts }).toMatchObject({ code: 2, counts: { both: 1, different: 0 } });
    expect(margins).toEqual([{ model: "*", requests: 300, charged: 600, cost: "0.25", margin: "5.75" }]);
    expect(badLines).toEqual([
      {
        place: "data[0].results[1]",
        message: 'amount.currency is "eur", but must be USD, in which costs are compared',
      },
    ]);
  });

  test("both APIs of Anthropic are read, with costs in cents", { timeout: LONG }, async () => {
    const times = { starting_at: dayAt, ending_at: isoTime(FROM_MS + DAY_MS + HOUR_MS) };
    const usage = {
      ...{ uncached_input_tokens: 6_000, cache_read_input_tokens: 2_400, output_tokens: 600 },
      cache_creation: { ephemeral_1h_input_tokens: 100, ephemeral_5m_input_tokens: 200 },
    };
    const names = { model: "gpt-5-mini-20250807", workspace_id: null };
    const words = ["--provider", "anthropic", "--upstream", "openai"];
    const legacy = { data: [{ ...times, results: [{ ...names, ...usage }] }], has_more: false, next_page: null };
    const rows = { data: [{ ...times, group: names, usage: { ...usage, total_tokens: 9_300 } }] };
    for (const document of [legacy, rows]) {
      const file = write("anthropic.json", JSON.stringify(document));
      expect(await reconcile(...words, file)).toMatchObject({ code: 0, counts: { both: 1 }, badLines: [] });
    }
    const day = { starting_at: dayAt, ending_at: isoTime(FROM_MS + 2 * DAY_MS) };
    const report = { data: [{ ...day, results: [{ ...names, amount: "123.45", currency: "USD" }] }] };
    const cost = { data: [{ ...day, group: names, cost: { amount: "123.45", currency: "USD", list_amount: "200" } }] };
    for (const document of [report, cost]) {
      const { margins } = await reconcile(...words, write("cost.json", JSON.stringify(document)));
      expect(margins).toMatchObject([{ model: "gpt-5-mini", cost: "1.2345", margin: "4.7655" }]);
    }
  });

  test("a CSV file without ids is added up by hours or days", { timeout: LONG }, async () => {
    const line = (n: number) => `${isoTime(FROM_MS + DAY_MS + 60_000 * n)},gpt-5-mini,100,40,5,10,`;
    const rows = [
      "time,model,input,cached_input,cache_write,output,currency",
      ...Array.from({ length: 300 }, (_, n) => line(n)),
    ];
    const file = write("sums.csv", rows.join("\r\n"));
    const words = ["--provider", "csv", "--upstream", "openai", file];
    expect(await reconcile(...words)).toMatchObject({ code: 0, counts: { both: 5 }, badLines: [] });
    expect(await reconcile(...words, "--bucket", "day")).toMatchObject({ code: 0, counts: { both: 1 } });
  });

  test("the API is read page by page with the key of the environment", { timeout: LONG }, async () => {
    const requests: { url: string; key: unknown }[] = [];
    const server: Server = createServer((request, response) => {
      const { url = "", headers } = request;
      requests.push({ url, key: headers.authorization ?? headers["x-api-key"] });
      if (url.includes("page=next")) return response.end(JSON.stringify(page(hour(1, 60))));
      if (url.startsWith("/empty")) return response.end(JSON.stringify(page(hour(0, 0))));
      if (url.startsWith("/endless")) return pipeline(Readable.from(endlessText()), response, () => {});
      if (url.startsWith("/broken")) return response.writeHead(401).end("{}");
      response.end(JSON.stringify({ ...page(hour(0, 60)), has_more: true, next_page: "next" }));
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const period = ["--from", dayAt, "--to", isoTime(FROM_MS + DAY_MS + 2 * HOUR_MS)];
    const failure = async (...words: string[]) => (await command("reconcile", ...words)).stderr;
    try {
      expect(await failure(...ofOpenAi, ...period)).toBe(
        "tollgate: OPENAI_ADMIN_KEY is not set. It must be an administrator's key.\n",
      );
      Object.assign(environment, { OPENAI_ADMIN_KEY: "sk-admin-1", ANTHROPIC_ADMIN_KEY: "sk-ant-admin-1" });
      const { code, counts } = await reconcile(...ofOpenAi, ...period, "--api-url", `${origin}/v1/organization`);
      expect({ code, counts }).toMatchObject({ code: 0, counts: { both: 2 } });
      const query = `group_by=model&bucket_width=1h&limit=168&start_time=${Date.parse(dayAt) / 1_000}&end_time=${Date.parse(dayAt) / 1_000 + 7_200}`;
      expect(requests).toEqual(
        ["", "&page=next"].map((more) => {
          return { url: `/v1/organization/usage/completions?${query}${more}`, key: "Bearer sk-admin-1" };
        }),
      );
      await reconcile(...ofOpenAi, ...period, "--key", "key_1", "--api-url", `${origin}/v1/organization`);
      expect(requests.at(-1)?.url).toContain("?group_by=model&group_by=api_key_id&bucket_width=1h");
      expect(await failure(...ofOpenAi, ...period, "--key", "key_1", "--costs")).toContain(
        "providers do not report costs by key",
      );
      const nothing = await reconcile(...ofOpenAi, ...period, "--api-url", `${origin}/empty`);
      expect(nothing).toMatchObject({ code: 2, counts: { both: 0, onlyService: 2 } });
      expect(await failure(...ofOpenAi, ...period, "--api-url", `${origin}/endless`)).toBe(
        "tollgate: The API of openai cannot be reached: its answer is larger than 67108864 bytes\n",
      );
      const broken = [...period, "--costs", "--api-url", `${origin}/broken`];
      expect(await failure("--provider", "anthropic", ...broken)).toBe(
        "tollgate: The API of anthropic answered with 401.\n",
      );
      expect(requests.at(-1)).toMatchObject({
        url: expect.stringMatching(
          /^\/broken\/cost_report\?group_by\[\]=description&bucket_width=1d&limit=31&starting_at=/,
        ),
        key: "sk-ant-admin-1",
      });
    } finally {
      for (const name of Object.keys(environment)) delete environment[name];
      server.close();
    }
  });

  test("a command that cannot compare anything says why", { timeout: LONG }, async () => {
    const failure = async (...words: string[]) => {
      const { code, stdout, stderr } = await command("reconcile", ...words);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      return stderr;
    };
    expect(await failure("--provider", "bedrock")).toBe("tollgate: Specify a file.\n");
    expect(await failure("--provider", "openai")).toBe(
      "tollgate: Specify a file, or --from and --to to ask the API.\n",
    );
    expect(await failure("--provider", "csv", "a")).toBe("tollgate: Name the provider of the file with --upstream.\n");
    expect(await failure("--provider", "azure", "a")).toContain(
      '--provider is "azure", but must be one of: openai, anthropic, bedrock, vertex, csv.',
    );
    expect(await failure(...ofOpenAi, "absent.json")).toMatch(/^tollgate: absent\.json cannot be read: ENOENT/);
    expect(await failure(...ofOpenAi, write("no.json", "no"))).toContain("no.json is not JSON.");
    const late = page({ ...hour(0, 60), start_time: 1e300, end_time: 1e300 });
    expect(await failure(...ofOpenAi, write("late.json", JSON.stringify(late)))).toContain("Nothing to compare");
    expect(await failure(...ofOpenAi, write("other.json", "\uFEFF{}"))).toContain(
      "data is missing, which a page of the provider's API has.",
    );
    const keyless = write("keyless.json", JSON.stringify(page(hour(0, 60, { api_key_id: null }))));
    expect(await failure(...ofOpenAi, keyless, "--key", "key_1")).toContain("no line of the provider names the key");
    expect(await failure("--provider", "bedrock", write("no.gz", "no"))).toContain(
      "no.gz cannot be read: incorrect header check",
    );
    expect(await failure("--provider", "bedrock", write("empty.json", ""))).toContain("Nothing to compare");
    const csv = write("columns.csv", "when,what\n");
    const words = ["--provider", "csv", "--upstream", "shop", csv];
    expect(await failure(...words)).toContain('There is no column "time"; the columns are: when, what.');
    expect(await failure(...words, "--column", "hour=when")).toContain(
      '--column names "hour", but must name: time, id, model',
    );
  });
});

function* endlessText() {
  for (;;) yield " ".repeat(65_536);
}
