/**
 * An upstream process that speaks OpenAI's protocol and follows the script in each prompt. It first logs each action to a
 * file of the request's trial in the given directory. It prints its port, and exits when its standard input ends.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { LETS_GO, type Script, trialOf, type UpstreamLine, WORD } from "./script.ts";

const [directory = "."] = process.argv.slice(2);
const FILES_OPEN_MAX = 16;
const files = new Map<string, number>();

function log(id: string, did: UpstreamLine["did"]): void {
  const line: UpstreamLine = { id, at: Date.now(), did };
  writeSync(fileOf(trialOf(id)), `${JSON.stringify(line)}\n`);
}

function fileOf(trial: string): number {
  const open = files.get(trial);
  if (open !== undefined) return open;
  for (const [oldest, file] of files) {
    if (files.size < FILES_OPEN_MAX) break;
    closeSync(file);
    files.delete(oldest);
  }
  const file = openSync(join(directory, `${trial}.upstream.jsonl`), "a");
  files.set(trial, file);
  return file;
}

/** Trials whose streams wait until they are released. */
const waiting = new Map<string, PromiseWithResolvers<void>>();

function waitingOf(trial: string): PromiseWithResolvers<void> {
  const known = waiting.get(trial) ?? Promise.withResolvers<void>();
  waiting.set(trial, known);
  return known;
}

const common = { id: "chatcmpl-upstream", created: 1_700_000_000, model: "upstream-model" };

async function stream(script: Script, response: ServerResponse): Promise<void> {
  const send = (fields: object) => {
    response.write(`data: ${JSON.stringify({ ...common, object: "chat.completion.chunk", ...fields })}\n\n`);
  };
  const piece = (delta: object, reason: string | null = null) =>
    send({ choices: [{ index: 0, delta, finish_reason: reason }] });
  response.writeHead(200, { "content-type": "text/event-stream" });
  piece({ role: "assistant", content: "" });
  for (let sent = 0; sent < script.words; sent += 1) {
    if (response.destroyed) return;
    if (script.silence === "middle" && sent >= script.words / 2) return;
    if (script.waitsAfterWords === sent) await waitingOf(trialOf(script.id)).promise;
    log(script.id, "sent a word");
    piece({ content: WORD });
    await sleep(script.paceMs);
  }
  if (response.destroyed) return;
  if (script.usage !== null) log(script.id, "sent usage");
  piece({}, "stop");
  if (script.usage !== null) send({ choices: [], usage: script.usage });
  if (script.silence === "usage") return;
  log(script.id, "sent all");
  response.end("data: [DONE]\n\n");
}

async function answerWhole(script: Script, response: ServerResponse): Promise<void> {
  await sleep(script.words * script.paceMs);
  if (response.destroyed || script.silence !== null) return;
  const message = { role: "assistant", content: WORD.repeat(script.words) };
  // Log probabilities make an answer longer without more text, which would need more tokens in the usage.
  const token = "x".repeat(script.paddingBytes);
  const logprobs = token === "" ? null : { content: [{ token, logprob: 0, bytes: null, top_logprobs: [] }] };
  const choices = [{ index: 0, message, logprobs, finish_reason: "stop" }];
  const usage = script.usage ?? undefined;
  if (usage !== undefined) log(script.id, "sent usage");
  log(script.id, "sent all");
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify({ ...common, object: "chat.completion", choices, usage }));
}

const server = createServer(async (request, response) => {
  if (request.url?.startsWith(LETS_GO) === true) {
    waitingOf(request.url.slice(LETS_GO.length)).resolve();
    response.end();
    return;
  }
  let text = "";
  for await (const chunk of request) text += chunk;
  const body: { stream?: boolean; messages: { content: string }[] } = JSON.parse(text);
  const script: Script = JSON.parse(body.messages.at(-1)?.content ?? "");
  log(script.id, "was asked");
  response.on("close", () => {
    if (!response.writableFinished) log(script.id, "was left");
  });
  response.on("error", () => {});
  if (script.silence === "start") return;
  if (body.stream === true) await stream(script, response);
  else await answerWhole(script, response);
});
// Without this, Node closes the connections of slow requests.
server.requestTimeout = 0;
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
process.stdin.resume().on("end", () => process.exit());
