import { createHash } from "node:crypto";
import { type FormFields, UploadedFile } from "../api/transcription/request.ts";
import { ApiError } from "../errors.ts";

/** The media type of forms with files. */
export const FORM_TYPE = "multipart/form-data";
const PARTS_MAX = 32;
/** RFC 2046, section 5.1.1: at most 70 characters. */
const BOUNDARY = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i;

/** Reads the body of a form. Throws ApiError if it is not one, or has too many parts. */
export async function readForm(body: Buffer, contentType: string): Promise<FormFields> {
  const [, quoted, plain] = BOUNDARY.exec(contentType) ?? [];
  const boundary = quoted ?? plain;
  if (boundary === undefined) throw invalidForm("its content type has no boundary");
  if (hasMoreThan(PARTS_MAX, `--${boundary}`, body)) throw invalidForm(`it has more than ${PARTS_MAX} parts`);
  const headers = { "content-type": `${FORM_TYPE}; boundary="${boundary}"` };
  const form = await new Response(body, { headers }).formData().catch(() => undefined);
  if (form === undefined) throw invalidForm("its parts cannot be read");
  const fields: FormFields = {};
  for (const [name, value] of form) {
    const field = typeof value === "string" ? value : await toUploadedFile(value);
    const before = fields[name];
    fields[name] = name.endsWith("[]") ? [...(Array.isArray(before) ? before : []), field] : field;
  }
  return fields;
}

async function toUploadedFile(file: File): Promise<UploadedFile> {
  const bytes = Buffer.from(await file.arrayBuffer());
  return new UploadedFile(file, bytes, createHash("sha256").update(bytes).digest("hex"));
}

function hasMoreThan(most: number, delimiter: string, body: Buffer): boolean {
  let at = -1;
  // The last delimiter ends the form.
  for (let found = 0; found <= most + 1; found += 1) {
    at = body.indexOf(delimiter, at + 1, "latin1");
    if (at < 0) return false;
  }
  return true;
}

function invalidForm(reason: string): ApiError {
  return new ApiError("invalid_value", `The request body is not a valid ${FORM_TYPE}: ${reason}.`);
}
