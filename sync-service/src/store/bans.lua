-- Puts a region's bans on the list that all regions share, and returns what changed on it of late, or
-- all: the same as weir_budget::ban::BanList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by when their ban ends, in microseconds
-- KEYS[2]   a sorted set of the same keys by when they were last banned, in microseconds
-- ARGV[1]   since when changes are asked for, in microseconds; 0 for the whole list
-- ARGV[2..] two per key: for how long it is banned, in microseconds, and the key as
--           weir_budget::ban::Ban writes itself
--
-- Returns   {now_us, {key, until_us, key, until_us, ...}}
--
-- The maxima in capitals are set in front of this text.

local key, changed = KEYS[1], KEYS[2]
local since = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- tostring() keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

for _, name in ipairs({key, changed}) do
  local kind = redis.call('TYPE', name).ok
  if kind ~= 'zset' and kind ~= 'none' then
    redis.call('DEL', name)
  end
end
for i = 2, #ARGV, 2 do
  local until_us = now + tonumber(ARGV[i])
  local known = tonumber(redis.call('ZSCORE', key, ARGV[i + 1]) or nil)
  if not known or until_us > known then
    redis.call('ZADD', key, whole(until_us), ARGV[i + 1])
    redis.call('ZADD', changed, whole(now), ARGV[i + 1])
  end
end

local function drop(gone)
  for _, member in ipairs(gone) do
    redis.call('ZREM', key, member)
    redis.call('ZREM', changed, member)
  end
end
drop(redis.call('ZRANGEBYSCORE', key, '-inf', whole(now)))
-- From the future: the clock has stepped back since.
drop(redis.call('ZRANGEBYSCORE', key, '(' .. whole(now + BAN_US_MAX), '+inf'))
local over = redis.call('ZCARD', key) - BANS_KEPT_MAX
if over > 0 then
  drop(redis.call('ZRANGE', key, 0, over - 1))
end

local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
if last[2] then
  local kept_ms = whole(math.ceil((tonumber(last[2]) - now) / 1000) + 1000)
  redis.call('PEXPIRE', key, kept_ms)
  redis.call('PEXPIRE', changed, kept_ms)
end

local said = {}
local function say(member, until_us)
  said[#said + 1] = member
  said[#said + 1] = whole(tonumber(until_us))
end
if since == 0 then
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    say(all[i], all[i + 1])
  end
else
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', changed, whole(since), '+inf')) do
    local until_us = redis.call('ZSCORE', key, member)
    if until_us then
      say(member, until_us)
    end
  end
end
return {whole(now), said}
