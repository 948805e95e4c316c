/**
 * Counts the completions that have not settled: those of disconnected clients count until their charge is committed. It is
 * a number, not a set of them: the discarded tables of a set would keep settled completions alive until the next major
 * collection.
 */
export class RunningCompletions {
  #count = 0;
  #isCut = false;
  readonly #waiting: (() => void)[] = [];

  /** True while the service itself closes connections: a client whose connection closes then has not disconnected. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Called before the connections of those that still run are closed. */
  cut(): void {
    this.#isCut = true;
  }

  /** Counts a completion until it settles, and returns it. */
  follow<T>(completion: Promise<T>): Promise<T> {
    this.#count += 1;
    const end = () => this.#end();
    completion.then(end, end);
    return completion;
  }

  get count(): number {
    return this.#count;
  }

  /** Resolves when none is running; more may begin afterwards. */
  ended(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #end(): void {
    this.#count -= 1;
    if (this.#count > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
