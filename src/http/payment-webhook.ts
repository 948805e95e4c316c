import type { FastifyInstance } from "fastify";

/** Takes the deliveries of Stripe. */
export interface PaymentReceiver {
  /** Resolves once what it is about is committed. Rejects if its signature is wrong, or if Stripe must deliver it again. */
  receive(body: Buffer, signature: string): Promise<void>;
}

/** Several times the size of the largest events. */
const EVENT_BYTES_MAX = 256 * 1024;

/** Serves the address at which Stripe delivers its events. Answers 200 once an event is committed, so that it is not repeated. */
export function servePaymentWebhook(server: FastifyInstance, receiver: PaymentReceiver): void {
  server.post("/webhooks/stripe", { config: { rawLimitBytes: EVENT_BYTES_MAX } }, async ({ headers, body }) => {
    await receiver.receive(Buffer.from((body ?? "") as Uint8Array), String(headers["stripe-signature"]));
    return { received: true };
  });
}
