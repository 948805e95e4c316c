import { expect, test } from "vitest";
import type { UploadedFile } from "../api/transcription/request.ts";
import { readForm } from "./multipart.ts";

/** As long as the headers of a part may be. */
const SPACES = " ".repeat(7_900);
const DISPOSITION = 'content-disposition: form-data; name="file"; filename="a"';

test("spaces within the headers of parts do not take a time that grows with their square", { timeout: 180_000 }, () => {
  const part = `--b\r\n${DISPOSITION}\r\ncontent-type:${SPACES}audio/a${SPACES.slice(0, -100)}b \r\n\r\nsound\r\n`;
  const narrow = part.replace(SPACES, " ");
  const body = Buffer.from(`${narrow.repeat(32)}--b--`);
  // Together more than the time of the test where each takes a second.
  for (let sent = 0; sent < 100; sent += 1) {
    const { file } = readForm(body, "multipart/form-data; boundary=b");
    expect((file as UploadedFile).type).toMatch(/^audio\/a +b$/);
  }
});
