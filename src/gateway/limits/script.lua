-- Counts in one atomic step of Redis.
--
-- A window is a hash of what is used (`used`) and its end in Redis's time (`ends`), and expires with it. Concurrent requests are
-- a hash from `NODE CONNECTION` to a number; numbers of nodes that are not alive are removed. The nodes are a hash from each
-- node to its connection and its last sign of life.

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
