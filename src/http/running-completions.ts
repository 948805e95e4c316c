/** The completions that have not settled: those of clients that left count until their charge is committed. */
export class RunningCompletions {
  readonly #running = new Set<Promise<unknown>>();
  #isCut = false;

  /** Whether connections are closed by the service: a client whose connection closes now did not leave. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Called before the connections of those that still run are closed. */
  cut(): void {
    this.#isCut = true;
  }

  /** Follows a completion to its end and hands it back. */
  follow<T>(completion: Promise<T>): Promise<T> {
    this.#running.add(completion);
    const forget = () => this.#running.delete(completion);
    completion.then(forget, forget);
    return completion;
  }

  get count(): number {
    return this.#running.size;
  }

  /** Resolves when none is left; more may begin meanwhile. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.allSettled(this.#running);
  }
}
