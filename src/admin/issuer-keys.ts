import { isDeepStrictEqual } from "node:util";
import { createLocalJWKSet, type LocalJWKSet } from "jose";
import { isObject, type JsonObject, objectsIn, parseJson, pick } from "../api/json.ts";
import { isSecureUrl } from "../config/formats.ts";
import { ApiError } from "../errors.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

export interface IssuerKeysOptions {
  rows: Pick<Store["identities"], "issuerKeys" | "claimIssuerKeys" | "storeIssuerKeys">;
  issuers: () => readonly string[];
  clock: () => number;
  log: Log;
}

const REFRESH_EVERY_MS = 3_600_000;
const VALID_MS = 24 * 3_600_000;
const LOOK_EVERY_MS = 60_000;
/** An unknown key makes the nodes ask an issuer once in this time, whatever strangers send. */
const ASK_GAP_MS = 30_000;
/** Time after which the store is read again while another node asks. */
const READ_GAP_MS = 1_000;
const TIMEOUT_MS = 5_000;
const BYTES_MAX = 256 * 1024;
const KEYS_MAX = 100;
/** The public members of a key. Everything else, also a private part that was published by mistake, is dropped. */
const MEMBERS = ["kty", "kid", "alg", "use", "key_ops", "crv", "x", "y", "n", "e"];

/** Public keys of issuers, shared by all nodes in the store, and used for up to 24 h when an issuer cannot be reached. */
export class IssuerKeys {
  readonly #options: IssuerKeysOptions;
  readonly #known = new Map<string, { set: LocalJWKSet; readAtMs: number }>();
  readonly #reads = new Map<string, { again: number; done: Promise<void> }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: IssuerKeysOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#refreshAll(), LOOK_EVERY_MS).unref();
    this.#refreshAll();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.allSettled([...this.#reads.values()].map(({ done }) => done));
  }

  /** Returns the keys of an issuer. Rejects with `issuer_unavailable` if there are none of the last 24 h. */
  async of(issuer: string): Promise<LocalJWKSet> {
    if (this.#valid(issuer) === undefined) await this.refresh(issuer);
    const keys = this.#valid(issuer);
    if (keys !== undefined) return keys;
    throw new ApiError("issuer_unavailable", undefined, { headers: { "retry-after": "30" } });
  }

  /** Reads the keys of an issuer again, from the store or from the issuer, unless that was done just now. */
  refresh(issuer: string): Promise<void> {
    const nowMs = this.#options.clock();
    const last = this.#reads.get(issuer);
    if (last !== undefined && nowMs < last.again && nowMs > last.again - 2 * ASK_GAP_MS) return last.done;
    const read = { again: nowMs + ASK_GAP_MS, done: Promise.resolve() };
    read.done = this.#read(issuer).then(
      (isAsked) => {
        if (!isAsked) read.again = nowMs + READ_GAP_MS;
      },
      (error) => {
        this.#reads.delete(issuer);
        throw error;
      },
    );
    this.#reads.set(issuer, read);
    return read.done;
  }

  #valid(issuer: string): LocalJWKSet | undefined {
    const known = this.#known.get(issuer);
    return known !== undefined && this.#options.clock() - known.readAtMs < VALID_MS ? known.set : undefined;
  }

  #refreshAll(): void {
    const { issuers, clock } = this.#options;
    for (const issuer of issuers()) {
      const readAtMs = this.#known.get(issuer)?.readAtMs ?? 0;
      // A store that does not answer is logged elsewhere; the keys are read the next time.
      if (clock() - readAtMs >= REFRESH_EVERY_MS) this.refresh(issuer).catch(() => undefined);
    }
  }

  /** Asks the issuer, unless another node has just done so, and takes what the store has then. Returns whether it was asked. */
  async #read(issuer: string): Promise<boolean> {
    const { rows, log, clock } = this.#options;
    const isAsked = await rows.claimIssuerKeys(issuer, ASK_GAP_MS);
    if (isAsked) {
      try {
        await rows.storeIssuerKeys(issuer, await fetchKeys(issuer));
      } catch (error) {
        log.warn({ issuer, err: error }, "the keys of an issuer cannot be read: the last ones are used for up to 24 h");
      }
    }
    const stored = await rows.issuerKeys(issuer);
    if (stored === undefined) return isAsked;
    const keys = stored.keys as { kty: string }[];
    const known = this.#known.get(issuer)?.set;
    // The same set while the keys are the same: what was verified with it stays verified.
    const set = known !== undefined && isDeepStrictEqual(known.jwks().keys, keys) ? known : createLocalJWKSet({ keys });
    this.#known.set(issuer, { set, readAtMs: clock() - stored.ageMs });
    return isAsked;
  }
}

/** Fetches the public keys of an issuer by its metadata (OpenID Connect Discovery, section 4). */
async function fetchKeys(issuer: string): Promise<JsonObject[]> {
  const metadata = await fetchObject(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  if (metadata.issuer !== issuer) throw new Error("Its metadata names another issuer");
  const { jwks_uri: address } = metadata;
  if (typeof address !== "string" || !isSecureUrl(address)) throw new Error("Its jwks_uri is not an https:// address");
  const keys = publicKeysIn((await fetchObject(address)).keys);
  if (keys.length === 0 || keys.length > KEYS_MAX) throw new Error(`It publishes ${keys.length} public keys`);
  return keys;
}

/** Returns the public keys of a key set, without any private part. A secret is no public key. */
export function publicKeysIn(published: unknown): JsonObject[] {
  const keys = objectsIn(published).filter(({ kty }) => typeof kty === "string" && kty !== "oct");
  return keys.map((key) => pick(key, MEMBERS));
}

/** Fetches a JSON object of bounded size, without following redirects. */
async function fetchObject(address: string): Promise<JsonObject> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const answer = await fetch(address, { redirect: "error", signal, headers: { accept: "application/json" } });
  if (!answer.ok || answer.body === null) throw new Error(`${new URL(address).pathname} answered ${answer.status}`);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body) {
    bytes += chunk.length;
    if (bytes > BYTES_MAX) throw new Error("The answer is too large");
    chunks.push(chunk);
  }
  const value = parseJson(Buffer.concat(chunks).toString());
  if (!isObject(value)) throw new Error("The answer is not a JSON object");
  return value;
}
