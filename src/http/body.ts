import { isUtf8 } from "node:buffer";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../errors.ts";

/** Takes JSON bodies only: any other content type or encoding is 415, what does not parse is 400 invalid_json. */
export function takeJsonBodies(server: FastifyInstance): void {
  server.removeAllContentTypeParsers();
  server.addContentTypeParser<Buffer>("application/json", { parseAs: "buffer" }, (request, body, done) => {
    try {
      done(null, parseJson(body, request.headers["content-encoding"]));
    } catch (error) {
      done(error as Error);
    }
  });
}

function parseJson(body: Buffer, encoding: string | undefined): unknown {
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    throw new ApiError("unsupported_media_type", "Send the request body without a `Content-Encoding`.");
  }
  if (body.length === 0) throw new ApiError("invalid_json", "The request body is empty. Send a JSON object.");
  if (!isUtf8(body)) throw new ApiError("invalid_json", "The request body is not valid UTF-8.");
  try {
    return JSON.parse(body.toString("utf8"));
  } catch (error) {
    throw new ApiError("invalid_json", `The request body is not valid JSON${positionIn(error)}.`, { cause: error });
  }
}

/** Where parsing stopped, from V8's message; the rest of the message quotes the body and is not repeated. */
function positionIn(error: unknown): string {
  const position = /at position (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
  return position === undefined ? "" : `: it breaks at position ${position}`;
}
