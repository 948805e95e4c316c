import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export interface Document {
  /** Relative to the project's root. */
  path: string;
  text: string;
}

/** A code block of a document. */
export interface Block {
  path: string;
  language: string;
  text: string;
}

/** Every Markdown page of the project. */
export function readDocuments(): Document[] {
  const pages = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" });
  const all = [...readdirSync(ROOT), "bench/README.md", "overspend/README.md", ...pages.map((path) => `docs/${path}`)];
  const paths = all.filter((path) => path.endsWith(".md"));
  return paths.map((path) => ({ path, text: readFileSync(join(ROOT, path), "utf8") }));
}

export function blocksOf({ path, text }: Document): Block[] {
  const found = text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm);
  return [...found].map(([, language = "", content = ""]) => ({ path, language, text: content }));
}

/** Code, in blocks and in lines, where commands, codes and paths are named. */
export function codeOf(document: Document): string[] {
  const spans = withoutBlocks(document.text).matchAll(/`([^`\n]+)`/g);
  return [...blocksOf(document).flatMap(({ text }) => text.split("\n")), ...[...spans].map(([, code = ""]) => code)];
}

/** Links to other places of the project: the page, relative to the root, and the heading on it. */
export function linksOf({ path, text }: Document): { target: string; heading: string | undefined }[] {
  const links = withoutBlocks(text).matchAll(/\]\(([^)\s]+)\)/g);
  return [...links].flatMap(([, link = ""]) => {
    if (/^[a-z]+:/.test(link)) return [];
    const [page = "", heading] = link.split("#");
    return [{ target: page === "" ? path : posix.join(posix.dirname(path), page), heading }];
  });
}

/** The names by which a page's headings are linked to, as GitHub makes them. */
export function headingsOf({ text }: Document): string[] {
  return [...withoutBlocks(text).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
      .trim()
      .replaceAll(" ", "-"),
  );
}

/** The rows of the table below a heading row, as cells. */
export function tableOf({ path, text }: Document, firstHeading: string): string[][] {
  const lines = text.split("\n");
  const start = lines.findIndex((line) => line.startsWith(`| ${firstHeading} |`));
  if (start === -1) throw new Error(`${path} has no table that starts with ${firstHeading}`);
  const rows: string[][] = [];
  for (const line of lines.slice(start + 2)) {
    if (!line.startsWith("|")) break;
    rows.push(
      line
        .slice(1, -1)
        .split(" | ")
        .map((cell) => cell.trim()),
    );
  }
  return rows;
}

function withoutBlocks(text: string): string {
  return text.replaceAll(/^```[\s\S]*?^```$/gm, "");
}
