/** Starts work, or joins the run that is under way: all callers of a time share one run. */
export interface SharedRun<Result> {
  (): Promise<Result>;
  /** Resolves when no run is under way; rejects as the run does. */
  ended(): Promise<void>;
}

/** Returns a function that does some work, which never runs twice at a time. */
export function sharedRun<Result>(work: () => Promise<Result>): SharedRun<Result> {
  let running: Promise<Result> | undefined;
  const join = () => {
    running ??= work().finally(() => {
      running = undefined;
    });
    return running;
  };
  return Object.assign(join, { ended: async () => void (await running) });
}
