import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ClientLine, ReportedUsage, Script, UpstreamLine } from "./script.ts";

/** The course of one request, as its client and the upstream logged it. Times are milliseconds since 1970. */
export interface Record {
  id: string;
  script: Script;
  streamed: boolean;
  organizationId: string;
  client: {
    status: number | undefined;
    /** Undefined while the request is running. */
    end: ClientLine["got"] | undefined;
    code: string | undefined;
    usage: ReportedUsage | undefined;
    /** When each piece arrived. */
    wordsAt: number[];
    endedAt: number;
  };
  upstream: {
    asked: number;
    askedAt: number;
    words: number;
    sentUsage: boolean;
    sentAll: boolean;
  };
}

/** Reads the records of one trial from the logs of a directory. */
export function readRecords(directory: string, trial: string): Map<string, Record> {
  const records = new Map<string, Record>();
  for (const line of linesOf<ClientLine>(join(directory, `${trial}.clients.jsonl`))) addClientLine(records, line);
  for (const line of linesOf<UpstreamLine>(join(directory, `${trial}.upstream.jsonl`))) {
    const record = records.get(line.id);
    if (record === undefined) throw new Error(`the upstream was asked ${line.id}, which no client sent`);
    addUpstreamLine(record, line);
  }
  return records;
}

function linesOf<Line>(path: string): Line[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line));
}

function addClientLine(records: Map<string, Record>, line: ClientLine): void {
  if (line.request !== undefined) records.set(line.id, emptyRecord(line.id, line.request));
  const client = records.get(line.id)?.client;
  if (client === undefined) throw new Error(`${line.id} has an answer and was never sent`);
  if (line.got === "status") client.status = line.status;
  else if (line.got === "usage") client.usage = line.usage;
  else if (line.got === "word") client.wordsAt.push(...Array(line.words).fill(line.at));
  else if (line.got !== "nothing yet") Object.assign(client, { end: line.got, code: line.code, endedAt: line.at });
}

function emptyRecord(id: string, request: NonNullable<ClientLine["request"]>): Record {
  return {
    id,
    ...request,
    client: { status: undefined, end: undefined, code: undefined, usage: undefined, wordsAt: [], endedAt: 0 },
    upstream: { asked: 0, askedAt: 0, words: 0, sentUsage: false, sentAll: false },
  };
}

function addUpstreamLine({ upstream, script }: Record, { at, did }: UpstreamLine): void {
  if (did === "was asked") {
    upstream.asked += 1;
    upstream.askedAt = at;
  } else if (did === "sent a word") upstream.words += 1;
  else if (did === "sent usage") upstream.sentUsage = true;
  else if (did === "sent all") {
    upstream.sentAll = true;
    // An unstreamed answer is not counted word by word.
    upstream.words = script.words;
  }
}
