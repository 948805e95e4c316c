import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hear, listen, settingsOf, startWire, whole } from "../../../../test/support/wire.ts";
import { createProvider } from "../../index.ts";

const ANSWER = {
  candidates: [{ content: { role: "model", parts: [{ text: "hello" }] }, finishReason: "STOP" }],
  usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 1, totalTokenCount: 4 },
};

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-vertex-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Credentials that are told by a file and exchanged for a token at an address (RFC 8693), as workloads outside have them. */
async function credentialsFile(tokenUrl: string): Promise<string> {
  const file = join(folder, "credentials.json");
  const subject = join(folder, "subject");
  await writeFile(subject, "proof of who we are");
  await writeFile(
    file,
    JSON.stringify({
      type: "external_account",
      audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/provider",
      subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
      token_url: tokenUrl,
      credential_source: { file: subject },
    }),
  );
  return file;
}

async function hearWith(answerToken: () => string, times = 2) {
  const wire = await startWire((socket, request) => {
    socket.write(request.startsWith("POST /token") ? answerToken() : whole(200, ANSWER));
  });
  const origin = `http://127.0.0.1:${wire.port}`;
  const own = { project: "p", location: "global", credentialsFile: await credentialsFile(`${origin}/token`) };
  const settings = settingsOf(`${origin}/v1/publishers/google`, { kind: "google-vertex", ...own });
  const provider = createProvider(settings, {});
  const heard = [];
  for (let count = 0; count < times; count += 1)
    heard.push(await hear(provider, { model: "gemini-2.5-flash", stream: false }));
  await provider.close();
  await wire.end();
  return { heard, requests: wire.requests };
}

const TOKEN = {
  access_token: "ya29.token",
  issued_token_type: "urn:ietf:params:oauth:token-type:access_token",
  token_type: "Bearer",
  expires_in: 3600,
};

test("A token is requested once and sent with every request.", async () => {
  const { heard, requests } = await hearWith(() => whole(200, TOKEN));
  expect(heard.map(({ text, error }) => [text, error])).toEqual([
    ["hello", undefined],
    ["hello", undefined],
  ]);
  expect(requests.filter((request) => request.startsWith("POST /token")).length).toBe(1);
  const calls = requests.filter((request) => request.includes(":generateContent"));
  expect(calls.length).toBe(2);
  for (const call of calls) expect(call.toLowerCase()).toContain("authorization: bearer ya29.token");
});

test("Refused credentials are reported as credentials.", async () => {
  const { heard } = await hearWith(() => whole(400, { error: "invalid_grant", error_description: "No such pool" }));
  for (const { error } of heard) expect(error).toMatchObject({ failure: "credentials", publicReason: undefined });
});

test("A token server that does not answer is reported as unavailable.", async () => {
  const { heard } = await hearWith(() => whole(503, {}), 1);
  for (const { error } of heard) expect(error).toMatchObject({ failure: "unavailable" });
});

test("A service account requests its token through the proxy of the environment.", async () => {
  const asked: string[] = [];
  const proxy = createServer().on("connect", (request, socket) => {
    asked.push(request.url ?? "");
    socket.end("HTTP/1.1 502 No\r\n\r\n");
  });
  const port = await listen(proxy);
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const file = join(folder, "account.json");
  const key = privateKey.export({ type: "pkcs8", format: "pem" });
  await writeFile(file, JSON.stringify({ type: "service_account", client_email: "a@p.example", private_key: key }));
  const own = { project: "p", location: "global", credentialsFile: file };
  const settings = settingsOf("http://127.0.0.1:9/v1", { kind: "google-vertex", ...own });
  const provider = createProvider(settings, { HTTPS_PROXY: `http://127.0.0.1:${port}` });
  expect((await hear(provider)).error).toMatchObject({ failure: "unavailable" });
  expect(asked).toContain("oauth2.googleapis.com:443");
  await provider.close();
  await new Promise((resolve) => proxy.close(resolve));
});

test("A caller that disconnects does not wait for a token.", async () => {
  const wire = await startWire(() => {});
  const file = await credentialsFile(`http://127.0.0.1:${wire.port}/token`);
  const own = { project: "p", location: "global", credentialsFile: file };
  const provider = createProvider(settingsOf(wire.baseUrl, { kind: "google-vertex", ...own }), {});
  const leaving = new AbortController();
  setTimeout(() => leaving.abort(new Error("gone")), 50);
  expect((await hear(provider, {}, leaving.signal)).error).toMatchObject({ message: "gone" });
  await provider.close();
  await wire.end();
});

test("A missing credentials file is refused at the start.", () => {
  const own = { project: "p", location: "global", credentialsFile: join(folder, "missing.json") };
  expect(() => createProvider(settingsOf("http://127.0.0.1:9/v1", { kind: "google-vertex", ...own }), {})).toThrow(
    /the kind google-vertex has no file '.*missing.json'/,
  );
});
