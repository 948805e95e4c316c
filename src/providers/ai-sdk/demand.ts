/**
 * Tracks whether the reader of an answer is waiting for more than the package has buffered. Each pipe of a package takes
 * and buffers a piece even while its reader is not reading, so the pipes are fed only while there is demand.
 */
export class Demand {
  /** True at first: some packages read the beginning of an answer before they return a stream. */
  #isThere = true;
  #arise = () => {};
  readonly #meet = <T>(value: T): T => {
    this.#isThere = false;
    return value;
  };

  /** Waits for a read from the package; there is demand until it resolves. Not async, because it runs for every part. */
  during<T>(read: Promise<T>): Promise<T> {
    this.#isThere = true;
    this.#arise();
    return read.then(this.#meet);
  }

  /** Resolves when there is demand that the pipes could not meet from their buffers within a turn of the event loop. */
  async unmet(): Promise<void> {
    do {
      await new Promise<void>((resolve) => {
        if (this.#isThere) setImmediate(resolve);
        else this.#arise = resolve;
      });
    } while (!this.#isThere);
  }
}
