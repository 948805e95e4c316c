/**
 * Whether the reader of an answer waits for more than the package has. The pipes of a package take all that they can get,
 * each keeps a piece for as long as nobody reads, and none says how much: so they are fed only while there is a demand.
 */
export class Demand {
  /** From the beginning: some packages look at what comes first before they give anything to read. */
  #isThere = true;
  #arise = () => {};
  readonly #meet = <T>(value: T): T => {
    this.#isThere = false;
    return value;
  };

  /** Waits for what the package gives; there is a demand until it comes. Not an async function: this is done for every part. */
  during<T>(read: Promise<T>): Promise<T> {
    this.#isThere = true;
    this.#arise();
    return read.then(this.#meet);
  }

  /** Resolves when there is a demand, and the pipes have had a turn of the event loop to meet it with what they keep. */
  async unmet(): Promise<void> {
    do {
      await new Promise<void>((resolve) => {
        if (this.#isThere) setImmediate(resolve);
        else this.#arise = resolve;
      });
    } while (!this.#isThere);
  }
}
