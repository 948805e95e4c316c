import { type LimitKey, type LimitState, limitStateOf, WINDOW_SECONDS, type WindowUse } from "../limits.ts";

/** Amounts that are counted together, all or nothing. */
export interface Step {
  uses: readonly WindowUse[];
  concurrent: readonly LimitKey[];
  /** True: the step is left out if the one before it was refused. */
  followsPrevious: boolean;
}

/** The outcome of a step. */
export interface StepOutcome {
  /** Index among the uses, then the concurrent requests; undefined if nothing was refused. */
  refused: number | undefined;
  /** One for each use. */
  windows: readonly { used: number; leftMs: number; endsAtMs: number; state: LimitState }[];
}

/** Unused tokens. */
export interface Return extends Pick<WindowUse, "kind" | "key" | "amount"> {
  /** The window that they were taken from, by its end in Redis's time. */
  endsAtMs: number;
}

/**
 * Everything that a node sends in one round trip. Redis ignores messages of an earlier connection of the node, which it may
 * read late.
 */
export interface Message {
  node: string;
  connection: number;
  /** Time after its last sign of life for which a node's concurrent requests are counted. */
  leaseMs: number;
  /** `join` registers a node, `beat` keeps it registered, `leave` removes it. */
  purpose: "count" | "join" | "beat" | "leave";
  steps: readonly Step[];
  returns: readonly Return[];
  /** Changes of the node's concurrent requests, by key; all of them for `join`. */
  running: ReadonlyMap<string, number>;
  /** Keys whose concurrent requests have to be kept. */
  kept: Iterable<string>;
}

/** The answer of Redis to a message. */
export interface Reply {
  nodes: number;
  outcomes: StepOutcome[];
}

/** Every key has the same hash tag, so that the script also runs where keys are spread over several servers. */
const PREFIX = "{tollgate}:";

/** Returns the arguments of EVAL after the script. */
export function encode({ steps, returns, running, kept, ...sender }: Message): string[] {
  const keys = new Map<string, number>();
  const indexOf = (kind: string, key: string) => {
    const name = `${PREFIX}${kind}:${key}`;
    const known = keys.get(name);
    if (known !== undefined) return known;
    // KEYS[1] are the nodes.
    keys.set(name, keys.size + 2);
    return keys.size + 1;
  };
  const message = {
    ...sender,
    steps: steps.map(({ uses, concurrent, followsPrevious }) => ({
      follows: followsPrevious,
      uses: uses.map(({ kind, key, limit, amount }) => [
        indexOf(kind, key),
        limit,
        amount,
        WINDOW_SECONDS[kind] * 1000,
      ]),
      concurrent: concurrent.map(({ key, limit }) => [indexOf("running", key), limit]),
    })),
    returns: returns.map(({ kind, key, amount, endsAtMs }) => [indexOf(kind, key), amount, endsAtMs]),
    running: [...running].map(([key, change]) => [indexOf("running", key), change]),
    kept: [...kept].map((key) => indexOf("running", key)),
  };
  return [String(keys.size + 1), `${PREFIX}nodes`, ...keys.keys(), JSON.stringify(message)];
}

/** Reads a reply of the script. Returns undefined if Redis does not know the connection. */
export function decode(reply: unknown, steps: readonly Step[]): Reply | undefined {
  const [isKnown, nowMs, nodes, results] = reply as [number, number, number, number[][]];
  if (isKnown !== 1) return undefined;
  const outcomes = steps.map(({ uses }, index): StepOutcome => {
    const [refused = 0, ...numbers] = results[index] ?? [];
    const windows = uses.map((use, position) => {
      const used = numbers[2 * position] ?? 0;
      const endsAtMs = numbers[2 * position + 1] ?? 0;
      const leftMs = endsAtMs - nowMs;
      return { used, leftMs, endsAtMs, state: limitStateOf(use, used, leftMs) };
    });
    return { refused: refused === 0 ? undefined : refused - 1, windows };
  });
  return { nodes, outcomes };
}

/**
 * Counts in one atomic step of Redis.
 *
 * - A window is a hash of what is used (`used`) and its end in Redis's time (`ends`), and expires with it.
 * - Concurrent requests are a hash from `NODE CONNECTION` to a number. Numbers of nodes that are not alive are removed.
 * - The nodes are a hash from each node to its connection and its last sign of life.
 */
export const SCRIPT = `
local message = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life = message.leaseMs * 2

local nodes, alive, live = {}, 0, {}
local entries = redis.call('HGETALL', KEYS[1])
for i = 1, #entries, 2 do
  local connection, seen = string.match(entries[i + 1], '^(%d+) (%d+)$')
  nodes[entries[i]] = tonumber(connection)
  if tonumber(seen) > now - message.leaseMs then
    alive = alive + 1
    live[entries[i] .. ' ' .. connection] = true
  elseif message.purpose == 'beat' then
    redis.call('HDEL', KEYS[1], entries[i])
  end
end

local own = message.node .. ' ' .. string.format('%d', message.connection)
local known = nodes[message.node]
if message.purpose == 'join' then
  if known and known > message.connection then return {0} end
  local former = known and message.node .. ' ' .. string.format('%d', known)
  if former and live[former] then live[former] = nil else alive = alive + 1 end
  live[own] = true
elseif known ~= message.connection or not live[own] then
  return {0}
end
if message.purpose == 'leave' then
  redis.call('HDEL', KEYS[1], message.node)
  alive = alive - 1
elseif message.purpose ~= 'count' then
  redis.call('HSET', KEYS[1], message.node, string.format('%d %d', message.connection, now))
  redis.call('PEXPIRE', KEYS[1], life)
end

for _, entry in ipairs(message.returns) do
  local key, amount, ends = KEYS[entry[1]], entry[2], entry[3]
  local window = redis.call('HMGET', key, 'used', 'ends')
  if window[2] and tonumber(window[2]) == ends then
    redis.call('HSET', key, 'used', string.format('%d', math.max(0, tonumber(window[1]) - amount)))
  end
end

local function run(key, change)
  if redis.call('HINCRBY', key, own, string.format('%d', change)) <= 0 then redis.call('HDEL', key, own) end
  redis.call('PEXPIRE', key, life)
end
for _, entry in ipairs(message.running) do run(KEYS[entry[1]], entry[2]) end
for _, index in ipairs(message.kept) do redis.call('PEXPIRE', KEYS[index], life) end

local function running(key)
  local sum, numbers = 0, redis.call('HGETALL', key)
  for i = 1, #numbers, 2 do
    if live[numbers[i]] then sum = sum + numbers[i + 1] else redis.call('HDEL', key, numbers[i]) end
  end
  return sum
end

local function step(wanted)
  local result, refused = {0}, 0
  for i, use in ipairs(wanted.uses) do
    local limit, amount, length = use[2], use[3], use[4]
    local window = redis.call('HMGET', KEYS[use[1]], 'used', 'ends')
    local used, ends = tonumber(window[1] or 0), tonumber(window[2] or 0)
    if ends <= now or ends > now + length then used, ends = 0, now + length end
    if refused == 0 and used + amount > limit then refused = i end
    result[2 * i], result[2 * i + 1] = used, ends
  end
  for i, entry in ipairs(wanted.concurrent) do
    if refused == 0 and running(KEYS[entry[1]]) >= entry[2] then refused = #wanted.uses + i end
  end
  result[1] = refused
  if refused > 0 then return result end
  for i, use in ipairs(wanted.uses) do
    local key, used, ends = KEYS[use[1]], result[2 * i] + use[3], result[2 * i + 1]
    redis.call('HSET', key, 'used', string.format('%d', used), 'ends', string.format('%d', ends))
    redis.call('PEXPIREAT', key, string.format('%d', ends))
    result[2 * i] = used
  end
  for _, entry in ipairs(wanted.concurrent) do run(KEYS[entry[1]], 1) end
  return result
end

local results, refused = {}, 0
for i, wanted in ipairs(message.steps) do
  if wanted.follows and refused > 0 then results[i] = {refused} else results[i] = step(wanted) end
  refused = results[i][1]
end
return {1, now, alive, results}
`;
