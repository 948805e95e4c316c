import type { FastifyInstance } from "fastify";

/** Receives the webhook deliveries of Stripe. */
export interface PaymentReceiver {
  /** Resolves once the changes are committed. Rejects if the signature is wrong, or if Stripe must deliver the event again. */
  receive(body: Buffer, signature: string): Promise<void>;
}

/** Maximum size of an event: several times that of the largest ones. */
const EVENT_BYTES_MAX = 256 * 1024;

/** Serves the webhook endpoint of Stripe. Responds 200 only once an event is committed: Stripe does not repeat it after that. */
export function servePaymentWebhook(server: FastifyInstance, receiver: PaymentReceiver): void {
  server.post("/webhooks/stripe", { config: { rawLimitBytes: EVENT_BYTES_MAX } }, async ({ headers, body }) => {
    await receiver.receive(Buffer.from((body ?? "") as Uint8Array), String(headers["stripe-signature"]));
    return { received: true };
  });
}
