/** A provider in its own thread, which takes bodies of any length and answers them all alike: it delays nobody's answers. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { parentPort } from "node:worker_threads";

const answer = JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "That was long." }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1_000, completion_tokens: 4, total_tokens: 1_004 },
});
const server = createServer((request, response) => {
  request.resume().on("end", () => response.writeHead(200, { "content-type": "application/json" }).end(answer));
});
server.listen(0, "127.0.0.1", () => parentPort?.postMessage((server.address() as AddressInfo).port));
