import type { EmbeddingVector } from "../api/embeddings/answer.ts";
import type { EmbeddingInput } from "../api/embeddings/decode.ts";
import { printable } from "../api/wording.ts";
import { NO_TOKENS, TOKEN_CLASSES, type TokenCounts } from "../credits/price.ts";
import type { ProviderEmbeddings } from "../providers/provider.ts";
import type { Admission } from "./admit.ts";
import type { Answered, Unanswered } from "./attempt.ts";
import { boundsOf, type Charge, chargedAt, isCredible, limited } from "./charge.ts";
import type { Delivery } from "./deliver.ts";
import type { EmbeddingPlan } from "./embedding-plan.ts";
import { publicError } from "./failures.ts";
import type { EmbeddingCall, Gateway } from "./gateway.ts";
import { decimalCost, type ProviderRecord, RESPONSE_ID_CHARACTERS_MAX, reportedTokens } from "./meter.ts";
import { book, isCharged, logDifference, recordedAttempts, type Settlement } from "./settle.ts";
import { STORED_CHARACTERS_MAX, type StoredAnswer } from "./stored-answer.ts";

/** An answer that passed the checks. */
export interface CheckedEmbeddings extends Pick<ProviderEmbeddings, "usage" | "responseId" | "ignored"> {
  vectors: readonly EmbeddingVector[];
}

/** A request of embeddings that has run. */
export interface EmbeddingRun extends Pick<Delivery, "end" | "failure" | "firstTokenMs"> {
  plan: EmbeddingPlan;
  admission: Admission;
  upstream: Answered<CheckedEmbeddings> | Unanswered;
}

/** An answer as it is stored under its idempotency key. */
export interface StoredEmbeddings extends Pick<StoredAnswer, "id" | "created" | "headers" | "tokens"> {
  embeddings: unknown[];
}

/** An answer but for its charge. */
export interface EncodedEmbeddings extends Pick<StoredEmbeddings, "id" | "created" | "headers"> {
  /** JSON of the vectors. */
  embeddings: readonly string[];
}

/**
 * Charges embeddings by their input tokens, or releases the hold, by the rules of a completion that is not streamed.
 * `encoded` is the answer, if there is one. Rejects with StoreUnavailableError where neither the store nor the spool takes it.
 */
export async function settleEmbeddings(
  gateway: Gateway,
  call: EmbeddingCall,
  run: EmbeddingRun,
  encoded: EncodedEmbeddings | undefined,
): Promise<Settlement> {
  const { admission, upstream, end } = run;
  const { facts, available } = admission;
  const isCalled = upstream.calledAtMs !== null;
  if (!isCharged({ end, isCalled, isStreamed: false, hasContent: false })) {
    await gateway.ledger.release({ facts, trace: traceOf(run, null) });
    return { tokens: NO_TOKENS, charged: 0n, available };
  }
  const charge = await chargeOfEmbeddings(gateway, run);
  const { basis, reported } = charge;
  const { facts: charging, tokens } = chargedAt(admission, upstream.route, charge.tokens, undefined);
  logDifference(gateway, facts, { route: upstream.route, charge, isComplete: end === "complete" });
  const isStored = call.idempotency !== null && end === "complete" && encoded !== undefined;
  return book(gateway, admission, {
    facts: charging,
    tokens,
    basis,
    end,
    trace: traceOf(run, reported),
    answer: isStored ? storedText(encoded, tokens) : null,
  });
}

/**
 * Returns the charge: the upstream's report where it is credible, else a count of the input. A report below the likely
 * tokens is compared with a count. Never above the bounds.
 */
async function chargeOfEmbeddings(
  { tokenCounter }: Pick<Gateway, "tokenCounter">,
  {
    plan: { model, request, estimate },
    admission: { facts, maxTokens },
    upstream: { route, answer },
  }: Pick<EmbeddingRun, "plan" | "admission" | "upstream">,
): Promise<Charge> {
  const bounds = boundsOf(model, route, estimate, maxTokens);
  const reported = answer?.usage === undefined ? undefined : reportedTokens(answer.usage);
  const isFree = TOKEN_CLASSES.every((tokenClass) => facts.prices[tokenClass] === 0n);
  if (reported !== undefined && (isFree || reported.input >= estimate.likely / 2)) {
    return limited(reported, "reported", reported, bounds);
  }
  const texts = request.inputs.filter((input) => typeof input === "string");
  const counts = isFree ? undefined : await tokenCounter.count([texts]);
  const count = counts === undefined ? estimate.likely : (counts[0] ?? 0) + tokenIds(request.inputs);
  if (reported !== undefined && isCredible(reported.input, count)) {
    return limited(reported, "reported", reported, bounds);
  }
  return limited({ ...NO_TOKENS, input: count }, "counted", reported, bounds);
}

function tokenIds(inputs: readonly EmbeddingInput[]): number {
  return inputs.reduce((sum, input) => sum + (typeof input === "string" ? 0 : input.length), 0);
}

function traceOf(
  { upstream, end, failure, firstTokenMs }: EmbeddingRun,
  reported: Parameters<typeof recordedAttempts>[1],
) {
  const { responseId: providerResponseId, cost: providerCost } = providerRecordOf(upstream);
  return {
    isStreamed: false,
    firstTokenMs,
    attempts: recordedAttempts(upstream.attempts, reported),
    failure: end === "complete" || end === "client_left" ? null : publicError(failure).code,
    providerResponseId,
    providerCost,
  };
}

/** Returns the provider's own record of an answer, as far as it is known. */
export function providerRecordOf({ answer }: EmbeddingRun["upstream"]): ProviderRecord {
  const { responseId, usage } = answer ?? {};
  return {
    responseId: responseId === undefined ? null : printable(responseId, RESPONSE_ID_CHARACTERS_MAX),
    cost: decimalCost(usage?.cost),
  };
}

/** Returns the JSON text of an answer to store under its idempotency key; null where it is too long. */
function storedText({ id, created, headers, embeddings }: EncodedEmbeddings, tokens: TokenCounts): string | null {
  const own = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-tollgate-")));
  const facts = { id, created, headers: own, tokens } satisfies Omit<StoredEmbeddings, "embeddings">;
  const text = `${JSON.stringify(facts).slice(0, -1)},"embeddings":[${embeddings.join(",")}]}`;
  return text.length > STORED_CHARACTERS_MAX ? null : text;
}
