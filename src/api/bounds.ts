/** Bounds on a request's body. They bound the time for which one request can occupy the event loop. */

/** Levels of arrays and objects in a body. */
export const JSON_DEPTH_MAX = 128;
/** Values in a body: texts, numbers and so on, and arrays and objects themselves. */
export const JSON_VALUES_MAX = 100_000;
export const MESSAGES_MAX = 10_000;
export const TOOLS_MAX = 1_024;
