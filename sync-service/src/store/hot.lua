-- Puts a region's hot keys on the list that all regions share, and returns what came onto it and what left it of late,
-- or all of it: the list is that of weir_budget::hot::HotList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by their rank, and within a rank by when they leave the list, in milliseconds
-- KEYS[2]   a sorted set of keys by when they came onto the list or left it, in milliseconds
-- ARGV[1]   since when changes are asked for, in milliseconds; 0 for the whole list
-- ARGV[2..] two for each hot key of the region: its rank, and the key as weir_budget::hot::HotKey writes itself
--
-- Returns   {now_ms, {key, ...}, {key, ...}}: those on the list, and those that are not
--
-- The maxima in capitals are set in front of this text.

-- More milliseconds than any clock shows until 2109; a double holds a few times as many exactly.
local RANK = 4398046511104

local key, changed = KEYS[1], KEYS[2]
local since = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

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

local function drop(gone)
  for _, member in ipairs(gone) do
    redis.call('ZREM', key, member)
    redis.call('ZADD', changed, whole(now), member)
  end
end
-- Drop what is over in each rank, and what is from the future: the clock has stepped back since.
local above = '-inf'
for rank = 0, RANK_MAX do
  local over = rank * RANK + now
  drop(redis.call('ZRANGEBYSCORE', key, above, whole(over)))
  above = '(' .. whole(over + LISTED_MS)
end
drop(redis.call('ZRANGEBYSCORE', key, above, '+inf'))

-- On a full list, a newcomer takes the place of one of a lower rank, or stays out.
local room, first = HOT_MAX - redis.call('ZCARD', key), nil
for i = 2, #ARGV, 2 do
  local rank, member = tonumber(ARGV[i]), ARGV[i + 1]
  local known = redis.call('ZSCORE', key, member)
  if not known and room <= 0 then
    first = first or redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if math.floor(tonumber(first[2]) / RANK) < rank then
      drop({first[1]})
      first, room = nil, room + 1
    end
  end
  if known or room > 0 then
    redis.call('ZADD', key, whole(rank * RANK + now + LISTED_MS), member)
    if first and first[1] == member then
      first = nil
    end
  end
  if not known and room > 0 then
    redis.call('ZADD', changed, whole(now), member)
    room = room - 1
  end
end

redis.call('ZREMRANGEBYSCORE', changed, '-inf', whole(now - CHANGES_KEPT_MS))
redis.call('ZREMRANGEBYSCORE', changed, '(' .. whole(now), '+inf')
redis.call('ZREMRANGEBYRANK', changed, 0, -(2 * HOT_MAX + 1))
redis.call('PEXPIRE', key, LISTED_MS + 1000)
redis.call('PEXPIRE', changed, CHANGES_KEPT_MS)

if since == 0 then
  return {whole(now), redis.call('ZRANGE', key, 0, -1), {}}
end
local on, off = {}, {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', changed, whole(since), '+inf')) do
  local to = redis.call('ZSCORE', key, member) and on or off
  to[#to + 1] = member
end
return {whole(now), on, off}
