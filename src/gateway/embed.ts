import {
  dimensionsOf,
  type EmbeddingVector,
  NumbersText,
  toEmbeddingListText,
  toEncodedText,
} from "../api/embeddings/answer.ts";
import type { EmbeddingOrder } from "../api/embeddings/decode.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { isOwnCut, StoreUnavailableError, UpstreamError } from "../errors.ts";
import type { Provider, ProviderEmbeddingCall, ProviderEmbeddings } from "../providers/provider.ts";
import { type Admission, admit, type Replay } from "./admit.ts";
import { headOf, headOfReplay } from "./answer.ts";
import { type Ask, attempt, noteEnd } from "./attempt.ts";
import { endOf } from "./deliver.ts";
import { type EmbeddingPlan, planForEmbeddings } from "./embedding-plan.ts";
import {
  type CheckedEmbeddings,
  type EmbeddingRun,
  type EncodedEmbeddings,
  providerRecordOf,
  type StoredEmbeddings,
  settleEmbeddings,
} from "./embedding-settle.ts";
import { publicError } from "./failures.ts";
import type { EmbeddingCall, Gateway } from "./gateway.ts";
import { type ReportedRun, reportOf } from "./report.ts";
import { endOfAnswer, isCharged, type Settlement, totalTokens } from "./settle.ts";

/** A response that is complete and charged. */
interface EmbeddingResponse {
  /** JSON. */
  body: string;
  headers: Record<string, string>;
}

/**
 * Runs one request of embeddings, with the steps of a completion. Its answer is never streamed. Returns undefined if the
 * client has disconnected. Throws ApiError or StoreUnavailableError.
 */
export async function embed(gateway: Gateway, call: EmbeddingCall): Promise<EmbeddingResponse | undefined> {
  const startedMs = gateway.clock();
  const plan = planForEmbeddings(gateway, call);
  const admission = await admit(gateway, call, plan);
  if ("answer" in admission) return replay(call, plan, admission);
  call.onHeld();
  admission.lease.onOver(call.cut);
  const upstream = await attempt(gateway, call, plan, admission, askForEmbeddings(call, plan));
  const run = { plan, admission, upstream, ...received(gateway, call, admission, upstream) };
  const encoded = upstream.answer === null ? undefined : answerOf(gateway, call, run, upstream.answer);
  const deliveredMs = gateway.clock();
  const { settlement, failure } = await conclude(gateway, call, run, encoded);
  report(call, { ...run, settlement, failure }, { startedMs, deliveredMs, settledMs: gateway.clock() });
  if (failure === undefined && encoded !== undefined && settlement !== undefined) {
    return responseOf(call, encoded.embeddings, encoded.headers, settlement);
  }
  return fail(gateway, call, run, failure);
}

/** Settles a request and ends its admission. Never rejects. */
async function conclude(
  gateway: Gateway,
  call: EmbeddingCall,
  run: EmbeddingRun,
  encoded: EncodedEmbeddings | undefined,
): Promise<{ settlement: Settlement | undefined; failure: unknown }> {
  let settlement: Settlement | undefined;
  try {
    settlement = await settleEmbeddings(gateway, call, run, encoded);
    return { settlement, failure: run.failure };
  } catch (failure) {
    return { settlement: undefined, failure };
  } finally {
    run.admission.leave(settlement === undefined ? 0 : totalTokens(settlement.tokens));
  }
}

/** Reports a settled request to its observer. */
function report(
  { onSettled }: EmbeddingCall,
  run: EmbeddingRun & Pick<ReportedRun, "settlement">,
  times: ReportedRun["times"],
): void {
  const { end, upstream } = run;
  const charged = isCharged({ end, isCalled: upstream.calledAtMs !== null, isStreamed: false, hasContent: false });
  const record = providerRecordOf(upstream);
  const facts = { isCharged: charged, finishReason: null, record, times };
  onSettled(() => reportOf({ operation: "embeddings", ...run, ...facts }));
}

/** Returns the function that asks a provider for embeddings, and takes only an answer that is whole. */
function askForEmbeddings(
  { signal, request: { dimensions } }: EmbeddingCall,
  { request }: EmbeddingPlan,
): Ask<CheckedEmbeddings> {
  return async (provider, { model }) => {
    try {
      const answer = await embeddingsOf(provider, { ...request, model, signal });
      signal.throwIfAborted();
      return { answer: checked(answer, request, dimensions) };
    } catch (failure) {
      return { answer: null, failure, received: [] };
    }
  };
}

async function embeddingsOf(provider: Provider, call: ProviderEmbeddingCall): Promise<ProviderEmbeddings> {
  if (provider.embed === undefined) throw new Error(`The provider '${provider.id}' creates no embeddings`);
  return provider.embed(call);
}

/** Checks that there is one vector for each input, all of the same length. Throws UpstreamError. */
function checked(answer: ProviderEmbeddings, { inputs }: EmbeddingOrder, wanted: number | undefined) {
  const [only, ...others] = answer.vectors;
  // Its numbers are checked, and there is no length to compare theirs with.
  const isAlone = inputs.length === 1 && others.length === 0 && wanted === undefined;
  if (isAlone && only instanceof NumbersText) return { ...answer, vectors: [only] };
  const vectors: EmbeddingVector[] = [];
  let dimensions = wanted;
  for (const vector of answer.vectors) {
    const found = dimensionsOf(vector);
    if (vector === undefined || found === undefined) {
      throw new UpstreamError("malformed", "The upstream's answer has an embedding that is not a vector");
    }
    dimensions ??= found;
    if (found !== dimensions) {
      throw new UpstreamError("malformed", `The upstream answered ${found} dimensions instead of ${dimensions}`);
    }
    vectors.push(vector);
  }
  if (vectors.length === inputs.length) return { ...answer, vectors };
  throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
}

/** Returns how a request has ended, as `deliver` does for a completion. */
function received(
  gateway: Gateway,
  { signal }: EmbeddingCall,
  { lease, admittedAtMs }: Admission,
  upstream: EmbeddingRun["upstream"],
): Pick<EmbeddingRun, "end" | "failure" | "firstTokenMs"> {
  if (upstream.answer === null) {
    const failure = isOwnCut(signal.reason) ? signal.reason : upstream.failure;
    return { end: endOf(failure, signal), failure, firstTokenMs: null };
  }
  noteEnd(gateway, upstream, undefined);
  const firstTokenMs = gateway.clock() - admittedAtMs;
  try {
    lease.require();
    return { end: "complete", failure: undefined, firstTokenMs };
  } catch (failure) {
    return { end: endOf(failure, signal), failure, firstTokenMs };
  }
}

/** Returns an answer but for its charge; `headers` are all of its head. */
function answerOf(
  gateway: Gateway,
  call: EmbeddingCall,
  { plan: { model, request }, admission, upstream: { route } }: EmbeddingRun,
  { vectors, ignored = [] }: CheckedEmbeddings,
): EncodedEmbeddings {
  const head = headOf(gateway, admission, { model, route, ignored: [...call.ignored, ...ignored] });
  const { id, created, headers } = head;
  return { id, created, headers, embeddings: vectors.map((vector) => toEncodedText(vector, request.encoding)) };
}

function responseOf(
  { principal: { organizationId }, request: { model } }: EmbeddingCall,
  embeddings: readonly string[],
  headers: Record<string, string>,
  settlement: Settlement,
): EmbeddingResponse {
  const cost = creditsFromMicro(settlement.charged);
  const usage = { promptTokens: totalTokens(settlement.tokens), cost };
  const body = toEmbeddingListText({ model, organizationId }, embeddings, usage);
  return { body, headers: { ...headers, ...endOfAnswer(settlement).headers } };
}

/** Sends a stored answer again. */
function replay(
  call: EmbeddingCall,
  { model }: EmbeddingPlan,
  { answer, charged, available, ...limits }: Replay,
): EmbeddingResponse {
  const stored = JSON.parse(answer) as StoredEmbeddings;
  const { headers } = headOfReplay(call, model, stored, { available, ...limits });
  const embeddings = stored.embeddings.map((vector) => JSON.stringify(vector));
  return responseOf(call, embeddings, headers, { tokens: stored.tokens, charged, available });
}

/** Throws the public error of a failure, unless the client has disconnected. */
function fail(
  { log }: Gateway,
  { requestId, principal, request, signal }: EmbeddingCall,
  { end, upstream: { attempts } }: EmbeddingRun,
  failure: unknown,
): undefined {
  const error = publicError(failure);
  const { organizationId, tokenId } = principal;
  const fields = { requestId, organizationId, tokenId, model: request.model, code: error.code, end, attempts };
  if (end === "client_left") log.debug(fields, "the client disconnected");
  else if (error.code === "internal_error") {
    log.error({ ...fields, defect: error.cause }, "embeddings failed inside the service");
  } else if (error.status < 500) log.debug(fields, "an upstream refused embeddings");
  else log.warn(fields, "embeddings failed");
  if (signal.aborted && !(signal.reason instanceof StoreUnavailableError)) return undefined;
  throw error;
}
