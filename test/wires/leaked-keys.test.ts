import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { createProvider } from "../../src/providers/index.ts";
import type { ProviderSettings } from "../../src/providers/settings.ts";
import { nativeOf } from "../support/second-wire.ts";
import { hear, settingsOf, startWire, whole } from "../support/wire.ts";

const KEY = "qWmZpLxKvBnRtYhGfDsAcEuJoIkMbVxZ";
/** Without a digit and without a prefix, so that only knowledge of the key removes it. */
const OTHER = "hTrWqPzLmKxNbVcYsDgFjQaUeOiRtZwX";

const folder = mkdtempSync(join(tmpdir(), "tollgate-keys-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const subject = join(folder, "subject");
writeFileSync(subject, "proof of who we are");

/** Settings of providers of each way in which a credential is sent. */
function settings(origin: string): Record<string, { own: Partial<ProviderSettings>; path?: string; isNative?: true }> {
  const credentialsFile = join(folder, "credentials.json");
  const external = { type: "external_account", audience: "//iam.googleapis.com/x", token_url: `${origin}/token` };
  const types = { subject_token_type: "urn:ietf:params:oauth:token-type:jwt" };
  writeFileSync(credentialsFile, JSON.stringify({ ...external, ...types, credential_source: { file: subject } }));
  const keys = { region: "eu-west-1", accessKeyId: KEY.slice(0, 20), secretAccessKey: OTHER, sessionToken: KEY };
  return {
    "an OpenAI-compatible API": { own: { apiKey: KEY, headers: { "x-account": OTHER } } },
    "a key in the address": { own: { headers: { "x-account": OTHER } }, path: `?key=${KEY}` },
    "the Messages wire": { own: { apiKey: KEY, secondWire: { wire: "messages" } }, isNative: true },
    Anthropic: { own: { kind: "anthropic", apiKey: KEY, headers: { "x-account": OTHER } } },
    Google: { own: { kind: "google", apiKey: KEY } },
    "Google Cloud with a token that was fetched": {
      own: { kind: "google-vertex", project: "p", location: "global", credentialsFile },
    },
    Bedrock: { own: { kind: "bedrock", ...keys } },
  };
}

/** Quotes credentials as upstreams do: the beginning, the end, in groups, on two lines, in another case. */
const quoted = (secret: string) =>
  [
    secret.slice(0, 23),
    secret.slice(-9),
    secret.replace(/(.{3})/g, "$1 "),
    `${secret.slice(0, 12)}\n${secret.slice(12)}`,
    secret.toUpperCase(),
    secret.slice(5, 20).split("").join("\u200b"),
  ].join(" or ");

describe("The reason of an upstream that quotes parts of its credentials names none of them:", () => {
  test.each(Object.keys(settings("http://127.0.0.1:9")))("%s.", async (name) => {
    const token = { access_token: KEY, issued_token_type: "t", token_type: "Bearer", expires_in: 3600 };
    const message = `The request is invalid: ${quoted(KEY)} or ${quoted(OTHER)} is wrong.`;
    const wire = await startWire((socket, request) => {
      if (request.startsWith("POST /token")) return void socket.write(whole(200, token));
      socket.end(whole(400, { error: { message, type: "invalid_request_error" } }));
    });
    const origin = `http://127.0.0.1:${wire.port}`;
    const { own, path = "", isNative } = settings(origin)[name] ?? { own: {} };
    const hidden = name.startsWith("Google") || name.startsWith("the Messages") ? [KEY] : [KEY, OTHER];
    const provider = createProvider(settingsOf(`${origin}/v1${path}`, own), {});
    try {
      const { error } = await hear(provider, { stream: false }, undefined, isNative && nativeOf("messages"));
      const { publicReason = "" } = error as { publicReason?: string };
      expect(publicReason).toContain("The request is invalid");
      const ink = publicReason.replaceAll(/[\s\u200b]/g, "").toLowerCase();
      for (const secret of hidden.map((one) => one.toLowerCase())) {
        for (let at = 0; at + 8 <= secret.length; at += 1) expect(ink).not.toContain(secret.slice(at, at + 8));
      }
    } finally {
      await provider.close();
      await wire.end();
    }
  });
});
