/** Everything that can have a price: classes of tokens (`direction`), parts of them (`partOf`), and calls. */
export const PRICE_CLASSES = {
  input: {
    code: "i",
    name: "input",
    direction: "input",
    description: "Prompt tokens; required in the first price.",
    priceData: "input_mtok",
  },
  cachedInput: {
    code: "c",
    name: "cached_input",
    direction: "input",
    costsAs: "input",
    description: "Cached prompt tokens; by default the price of input.",
    priceData: "cache_read_mtok",
  },
  cacheWrite: {
    code: "w",
    name: "cache_write",
    direction: "input",
    costsAs: "input",
    description: "Prompt tokens written to the provider's cache; by default the price of input.",
    priceData: "cache_write_mtok",
  },
  cacheWrite1h: {
    code: "h",
    name: "cache_write_1h",
    partOf: "cacheWrite",
    description: "Prompt tokens that the cache keeps for an hour; by default the price of cacheWrite.",
    priceData: "cache_write_1h_mtok",
    reportedAs: "cache_write_1h_tokens",
    isWithinClass: true,
    onlyIf: "hasHourCache",
  },
  cachedAudio: {
    code: "d",
    name: "cached_audio",
    partOf: "cachedInput",
    description: "Cached audio tokens; by default the price of cachedInput.",
    priceData: "cache_audio_read_mtok",
    reportedAs: "cached_audio_tokens",
    isWithinClass: true,
    onlyIf: "hasMedia",
  },
  inputAudio: {
    code: "a",
    name: "input_audio",
    partOf: "input",
    description: "Audio tokens of the prompt; by default the price of input.",
    priceData: "input_audio_mtok",
    reportedAs: "input_audio_tokens",
    reportIncludes: "cachedAudio",
    onlyIf: "hasMedia",
  },
  inputImage: {
    code: "g",
    name: "input_image",
    partOf: "input",
    description: "Image tokens of the prompt; by default the price of input.",
    priceData: "input_image_mtok",
    reportedAs: "input_image_tokens",
  },
  output: {
    code: "o",
    name: "output",
    direction: "output",
    description: "Completion tokens; required in the first price, except for an embedding model.",
    priceData: "output_mtok",
  },
  reasoning: {
    code: "r",
    name: "reasoning",
    direction: "output",
    costsAs: "output",
    description: "Reasoning tokens; by default the price of output.",
    priceData: "output_reasoning_mtok",
  },
  outputAudio: {
    code: "s",
    name: "output_audio",
    partOf: "output",
    description: "Audio tokens of the completion; by default the price of output.",
    priceData: "output_audio_mtok",
    reportedAs: "output_audio_tokens",
  },
  outputImage: {
    code: "p",
    name: "output_image",
    partOf: "output",
    description: "Image tokens of the completion; by default the price of output.",
    priceData: "output_image_mtok",
    reportedAs: "output_image_tokens",
  },
  requests: {
    code: "q",
    name: "requests",
    isCall: true,
    setting: "perRequest",
    description: "Credits for each request, in addition to its tokens; 0 by default.",
    priceData: "requests_kcount",
  },
  searches: {
    code: "f",
    name: "searches",
    isCall: true,
    setting: "perSearch",
    description: "Credits for each search that the provider reports; 0 by default.",
    priceData: "web_searches_kcount",
    reportedAs: "searches",
    onlyIf: "callsMost",
  },
  images: {
    code: "m",
    name: "images",
    isCall: true,
    setting: "perImage",
    description: "Credits for each image that is made; 0 by default.",
    reportedAs: "images",
    onlyIf: "callsMost",
  },
  characters: {
    code: "t",
    name: "characters",
    isCall: true,
    setting: "perCharacter",
    description: "Credits for each character of a text that is spoken; 0 by default.",
    onlyIf: "callsMost",
  },
  seconds: {
    code: "k",
    name: "seconds",
    isCall: true,
    setting: "perSecond",
    description: "Credits for each second of audio that is transcribed, a begun one in full; 0 by default.",
    reportedAs: "seconds",
    onlyIf: "callsMost",
  },
} as const satisfies Record<string, Row>;

interface Row {
  /** Its letter in stored charges: never changed, and never used for another class. */
  code: string;
  name: string;
  direction?: "input" | "output";
  /** The class that it costs as much as, where it has no price of its own. */
  costsAs?: string;
  /** The class of tokens that contains it, and that it costs as much as, where it has no price of its own. */
  partOf?: string;
  /** True if it is counted in addition to the tokens, and its price is that of one. */
  isCall?: true;
  /** Key of its price in the configuration, where that is not the class. */
  setting?: string;
  description: string;
  /** Name of its price in the price data: `…_mtok` by the million tokens, `…_kcount` by the thousand calls. */
  priceData?: string;
  /** Field of an upstream's usage that reports it. Classes of tokens are read one by one. */
  reportedAs?: string;
  /** True if a report of more than its class is not plausible. Others are counted across classes: the excess is in another. */
  isWithinClass?: true;
  /** Another part that the report counts too. */
  reportIncludes?: string;
  /** The property of a request that it needs. A call is charged up to `callsMost` of the route, or else once a request. */
  onlyIf?: "hasMedia" | "hasHourCache" | "callsMost";
}

type Rows = typeof PRICE_CLASSES;
export type PriceClass = keyof Rows;
type With<Property extends string> = {
  [Class in PriceClass]: Rows[Class] extends Record<Property, unknown> ? Class : never;
}[PriceClass];
/** A class of tokens. The classes are disjoint; `input` has no cached tokens, `output` no reasoning. */
export type TokenClass = With<"direction">;
/** A part of a class, or a call. Few requests have any. */
export type FurtherClass = Exclude<PriceClass, TokenClass>;
/** The key of a class's price in the configuration. */
export type PriceSetting = {
  [Class in PriceClass]: Rows[Class] extends { setting: infer Setting } ? Setting : Class;
}[PriceClass];
export type NameOf<Class extends PriceClass> = Rows[Class]["name"];
/** Values by the names of the classes in the APIs. */
export type ByName<Value> = { [Class in TokenClass as NameOf<Class>]: Value } & {
  [Class in FurtherClass as NameOf<Class>]?: Value;
};
type CallClass = With<"isCall">;
export type CallCounts = { [Class in CallClass]?: number };
export type CallName = NameOf<CallClass>;

/** A field of an upstream's usage that reports a part of a class, or calls. */
export type ReportField = {
  [Class in PriceClass]: Rows[Class] extends { reportedAs: infer Field } ? Field : never;
}[PriceClass];
interface References {
  partOf?: TokenClass;
  costsAs?: TokenClass;
  reportedAs?: ReportField;
  reportIncludes?: FurtherClass;
}
export type ClassRow = Row & References & { class: PriceClass; setting: PriceSetting };
const ROWS = Object.entries(PRICE_CLASSES) as [PriceClass, Omit<ClassRow, "class">][];
/** All rows get the same properties in the same order, because V8 looks up those of many shapes by their names. */
const SHAPE = Object.fromEntries(ROWS.flatMap(([, row]) => Object.keys(row)).map((name) => [name, undefined]));
/** The rows of the table. Those of classes of tokens and of all others: in the order of the APIs. */
export const PRICE_ROWS: readonly ClassRow[] = ROWS.map(([name, row]) => ({
  ...SHAPE,
  ...row,
  class: name,
  setting: row.setting ?? (name as PriceSetting),
}));
export const TOKEN_CLASSES = PRICE_ROWS.filter(({ direction }) => direction).map((row) => row.class as TokenClass);
export const FURTHER_ROWS = PRICE_ROWS.filter(({ direction }) => !direction) as readonly (ClassRow & {
  class: FurtherClass;
})[];
export const FURTHER_CLASSES = FURTHER_ROWS.map((row) => row.class);
export const CALL_ROWS = FURTHER_ROWS.filter(({ isCall }) => isCall) as readonly (ClassRow & { class: CallClass })[];
