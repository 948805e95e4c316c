import { gunzipSync } from "node:zlib";
import swagger from "@fastify/swagger";
import fastify from "fastify";
import { expect, test, vi } from "vitest";
import { documentHandler } from "./openapi.ts";

async function serverWithDocument(format: "json" | "yaml" = "json") {
  const server = fastify();
  await server.register(swagger);
  server.get("/openapi.json", documentHandler(server, format));
  await server.ready();
  const serialize = vi.spyOn(server, "swagger");
  const get = (etag = "", encoding = "") =>
    server.inject({ url: "/openapi.json", headers: { "if-none-match": etag, "accept-encoding": encoding } });
  return { get, serialize };
}

test("The OpenAPI document is serialized once for all requests.", async () => {
  const { get, serialize } = await serverWithDocument();
  const answers = [await get(), await get(), await get()];
  expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200]);
  expect(answers[0]?.json()).toMatchObject({ paths: {} });
  expect(answers[2]?.body).toBe(answers[0]?.body);
  expect(serialize).toHaveBeenCalledTimes(1);
});

test("The OpenAPI document is serialized once as YAML too.", async () => {
  const { get, serialize } = await serverWithDocument("yaml");
  const answers = [await get(), await get()];
  expect(answers[0]?.headers["content-type"]).toBe("application/x-yaml");
  expect(answers[0]?.body).toMatch(/^paths:$/m);
  expect(answers[1]?.body).toBe(answers[0]?.body);
  expect(serialize).toHaveBeenCalledTimes(1);
});

test("A client with the current OpenAPI document gets 304 without a body.", async () => {
  const { get } = await serverWithDocument();
  const etag = (await get()).headers.etag as string;
  expect(etag).toMatch(/^W\/"[\w-]{43}"$/);
  for (const known of [etag, etag.slice(2), `"other", ${etag}`, "*"]) {
    const answer = await get(known);
    expect([answer.statusCode, answer.body, answer.headers.etag]).toEqual([304, "", etag]);
  }
  for (const unknown of ['"other"', "", etag.slice(3, -1)]) expect((await get(unknown)).statusCode).toBe(200);
});

test("The OpenAPI document is compressed for clients that accept it.", async () => {
  const { get } = await serverWithDocument();
  const plain = await get();
  expect(plain.headers["content-encoding"]).toBeUndefined();
  for (const encoding of ["gzip", "br, gzip, deflate", "gzip, deflate;q=0.5"]) {
    const answer = await get(undefined, encoding);
    expect(answer.headers).toMatchObject({ "content-encoding": "gzip", vary: "Accept-Encoding" });
    expect(gunzipSync(answer.rawPayload).toString()).toBe(plain.body);
    expect(answer.headers.etag).toBe(plain.headers.etag);
  }
  for (const encoding of ["identity", "br", "gzip;q=0"]) expect((await get(undefined, encoding)).body).toBe(plain.body);
});
