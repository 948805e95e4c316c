import { connect } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { makeOrganization, startService } from "../support/service.ts";
import { answering, startUpstream } from "../support/upstream.ts";

interface Statement {
  entries: { kind: string }[];
}

test("A complete answer that is stored, and whose delivery broke, is sent to one retry, and costs nothing.", async () => {
  const text = "word ".repeat(1_500_000);
  const models = [
    { id: "cut", price: { input: 0, output: 0, perRequest: 2 }, routes: [{ provider: "up", model: "cut" }] },
  ];
  const upstream = await startUpstream();
  const own = await startService({
    config: { providers: [upstream.provider], models, responses: { limitBytes: 128 * 1024 * 1024 } },
  });
  try {
    upstream.behave("cut", answering({ words: [text] }));
    const organization = await makeOrganization(own, "1000");
    const body = JSON.stringify({ model: "cut", input: "Say the word.", max_output_tokens: 50 });
    const head = `host: a\r\nauthorization: Bearer ${organization.token}\r\nx-stainless-retry-count: 0\r\nx-client-request-id: conversation`;
    const length = `content-type: application/json\r\ncontent-length: ${body.length}`;
    // Reads nothing, so that the answer does not fit into the buffers of the connection.
    const socket = connect(Number(new URL(own.url).port), "127.0.0.1");
    socket.on("error", () => {});
    socket.write(`POST /v1/responses HTTP/1.1\r\n${head}\r\n${length}\r\n\r\n${body}`);
    const count = async () => {
      const { entries } = await own.tollgate<Statement>("credits", "statement", "--org", organization.id);
      return entries.filter(({ kind }) => kind === "charge").length;
    };
    await expect.poll(count, { timeout: 60_000 }).toBe(1);
    const store = new DatabaseSync(join(own.dataDir, "tollgate.db"), { readOnly: true, timeout: 60_000 });
    const offered = () => store.prepare("select id from response_item where undelivered is not null").all();
    const kept = () => store.prepare("select id from response_item where id like 'resp_%'").all();
    await expect.poll(() => kept().length, { timeout: 60_000 }).toBe(1);
    socket.destroy();
    await expect.poll(() => offered().length, { timeout: 60_000 }).toBe(1);
    const repeat = async (retries: string, change: object = {}) => {
      const answer = await fetch(`${own.url}/v1/responses`, {
        ...{ method: "POST", body: JSON.stringify({ ...JSON.parse(body), ...change }) },
        headers: {
          ...{ authorization: `Bearer ${organization.token}`, "content-type": "application/json" },
          "x-stainless-retry-count": retries,
          "x-client-request-id": "conversation",
        },
      });
      const { output } = (await answer.json()) as { output: { content: { text: string }[] }[] };
      expect(output[0]?.content[0]?.text).toBe(text);
      return answer.headers.get("x-tollgate-idempotent-replay");
    };
    expect(await repeat("1", { max_output_tokens: 51 })).toBeNull();
    expect(await repeat("0")).toBeNull();
    expect(await count()).toBe(3);
    expect(await repeat("1")).toBe("true");
    expect(await count()).toBe(3);
    expect(await repeat("1")).toBeNull();
    expect(await count()).toBe(4);
    store.close();
    expect(await own.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  } finally {
    await own.end();
    await upstream.close();
  }
});
