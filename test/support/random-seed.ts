/** Gives all properties the seed in the variable `SEED`, by which a run is repeated. */
if (process.env.SEED !== undefined) {
  const { configureGlobal } = await import("fast-check");
  configureGlobal({ seed: Number(process.env.SEED) });
}
