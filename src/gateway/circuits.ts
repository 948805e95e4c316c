import { type Route, upstreamOf } from "../catalog/model.ts";
import type { Provider } from "../providers/provider.ts";
import { Circuit, type RouteHealth } from "./circuit.ts";

/** A circuit for each upstream that was ever called: the same for all models that a route leads there from. */
export class Circuits {
  readonly #circuits = new Map<string, Circuit>();

  of(route: Route, provider: Pick<Provider, "isScripted">): Circuit {
    const upstream = upstreamOf(route);
    const known = this.#circuits.get(upstream);
    if (known !== undefined) return known;
    const circuit = new Circuit(route, provider.isScripted !== true);
    this.#circuits.set(upstream, circuit);
    return circuit;
  }

  /** What is known of every upstream that was called since the start. */
  health(nowMs: number): RouteHealth[] {
    return [...this.#circuits.values()].map((circuit) => circuit.health(nowMs));
  }
}
