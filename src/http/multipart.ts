import { createHash } from "node:crypto";
import querystring from "node:querystring";
import { type FormFields, UploadedFile } from "../api/transcription/request.ts";
import { ApiError } from "../errors.ts";

/** The media type of forms with files. */
export const FORM_TYPE = "multipart/form-data";
const PARTS_MAX = 32;
const HEAD_BYTES_MAX = 8 * 1024;
/** RFC 2046, section 5.1.1: at most 70 characters. */
const BOUNDARY = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i;
const DISPOSITION = /^content-disposition:\s*form-data\s*(;.*)/im;
const TYPE = /^content-type:(.*)$/im;

/** Reads a form (RFC 7578) in milliseconds; for hostile ones, Node and Fastify take up to a minute. Throws ApiError if it is invalid. */
export function readForm(body: Buffer, contentType: string): FormFields {
  const [, quoted, plain] = BOUNDARY.exec(contentType) ?? [];
  const boundary = quoted ?? plain;
  if (boundary === undefined) throw invalidForm("its content type has no boundary");
  const fields: FormFields = Object.create(null);
  for (const { head, content } of partsOf(body, boundary)) {
    const [, parameters = ""] = DISPOSITION.exec(head) ?? [];
    const name = parameterOf(parameters, "name");
    if (name === undefined) throw invalidForm("a part has no name");
    // RFC 7578, section 4.2, forbids the second form, which some clients send for other characters than those of ASCII.
    const encoded = parameterOf(parameters, "filename\\*")?.replace(/^.*''/, "");
    const file =
      parameterOf(parameters, "filename") ?? (encoded === undefined ? undefined : querystring.unescape(encoded));
    const field = file === undefined ? content.toString() : toUploadedFile(file, head, content);
    const before = fields[name];
    fields[name] = name.endsWith("[]") ? [...(Array.isArray(before) ? before : []), field] : field;
  }
  return fields;
}

/** Divides a body at its delimiters (RFC 2046, section 5.1.1). */
function* partsOf(body: Buffer, boundary: string): Generator<{ head: string; content: Buffer }> {
  const delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
  const first = delimiter.subarray(2);
  let end = body.subarray(0, first.length).equals(first) ? -2 : body.indexOf(delimiter);
  for (let count = 0; ; count += 1) {
    const start = end + delimiter.length;
    if (end !== -1 && body.toString("latin1", start, start + 2) === "--") return;
    if (count === PARTS_MAX) throw invalidForm(`it has more than ${PARTS_MAX} parts`);
    const headBytes = end === -1 ? -1 : body.subarray(start, start + HEAD_BYTES_MAX).indexOf("\r\n\r\n");
    const from = start + headBytes + 4;
    end = headBytes === -1 ? -1 : body.indexOf(delimiter, from);
    if (end === -1) throw invalidForm("its parts cannot be read");
    yield { head: body.toString("utf8", start, from), content: body.subarray(from, end) };
  }
}

/** Returns a parameter. Browsers encode quotes and line breaks in it (HTML standard, "Multipart form data"). */
function parameterOf(parameters: string, name: string): string | undefined {
  const [, quoted, plain] = new RegExp(`;\\s*${name}=(?:"([^"]*)"|([^\\s;"]+))`, "i").exec(parameters) ?? [];
  return (quoted ?? plain)?.replace(/%(?:22|0d|0a)/gi, (code) => querystring.unescape(code));
}

function toUploadedFile(name: string, head: string, bytes: Buffer): UploadedFile {
  const type = TYPE.exec(head)?.[1]?.trim() ?? "";
  return new UploadedFile({ name, type }, bytes, createHash("sha256").update(bytes).digest("hex"));
}

function invalidForm(reason: string): ApiError {
  return new ApiError("invalid_value", `The request body is not a valid ${FORM_TYPE}: ${reason}.`);
}
