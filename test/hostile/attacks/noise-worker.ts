/**
 * Makes a noise until it receives a message, in its own thread, so that it delays neither the victim nor the provider. Reports
 * when its requests reach the resource, and at the end how many answers of each status it got.
 */
import { parentPort, workerData } from "node:worker_threads";
import type { Customer, Target } from "./attack.ts";
import { NOISES } from "./noises.ts";

const { target, customer, does } = workerData as { target: Target; customer: Customer; does: string };
const noise = NOISES.find((one) => one.does === does);
if (noise === undefined) throw new Error(`There is no noise of a customer that ${does}`);
const stopping = new AbortController();
const statuses = new Map<number, number>();
parentPort?.once("message", () => stopping.abort());
const note = (status: number) => {
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
  if (status === noise.reaches && statuses.get(status) === 1) parentPort?.postMessage("reached");
};
await noise.make({ ...customer, target, signal: stopping.signal, note });
parentPort?.postMessage(statuses);
