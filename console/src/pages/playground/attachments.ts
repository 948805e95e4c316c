import type { Attachment } from "./conversation.ts";

/** Text of these types is sent as text, which every model takes. */
const IS_TEXT = /^text\/|[/+](json|xml|yaml|x-yaml|javascript|typescript|csv|toml)$/;
const IMAGES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const FILE_BYTES_MAX = 10 * 1024 * 1024;

export const ACCEPTED = [...IMAGES, "application/pdf", "text/*", "application/json"].join(",");

/** Reads files to send with a message. Rejects with a text for people if one cannot be sent. */
export async function readFiles(files: readonly File[]): Promise<Attachment[]> {
  return Promise.all(files.map(readOne));
}

async function readOne(file: File): Promise<Attachment> {
  const { name, type, size } = file;
  if (size > FILE_BYTES_MAX) throw new Error(`${name} is larger than 10 MB.`);
  if (IS_TEXT.test(type) || /\.(md|txt|csv|ya?ml|toml|ts|py|log)$/.test(name)) {
    return { name, type: "text/plain", url: "", text: await file.text() };
  }
  if (!IMAGES.includes(type) && type !== "application/pdf") {
    throw new Error(`${name} is no image, PDF or text.`);
  }
  return { name, type, url: await dataUrlOf(file) };
}

function dataUrlOf(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

/**
 * Makes a blob of an image in a `data:` URL; null for another one. Only types that contain no scripts are shown, and an image
 * of another host is never fetched.
 */
export function blobOf(url: string): Blob | null {
  const [, type = "", data = ""] = /^data:([^;,]+);base64,([A-Za-z0-9+/=\s]+)$/.exec(url) ?? [];
  if (!IMAGES.includes(type)) return null;
  try {
    return new Blob([Uint8Array.from(atob(data), (character) => character.charCodeAt(0))], { type });
  } catch {
    return null;
  }
}
