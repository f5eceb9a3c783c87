-- Adds a region's hot keys to the list that all regions share, and returns the recent changes of the list, or all of
-- it. The same as weir_budget::hot::HotList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by rank, and within a rank by the end of their listing, in milliseconds
-- KEYS[2]   a sorted set of keys by the time at which they were added to the list or left it, in milliseconds
-- ARGV[1]   time from which to return changes, in milliseconds; 0 for the whole list
-- ARGV[2..] two for each hot key of the region: its rank, and its text form (weir_budget::hot::HotKey)
--
-- Returns   {now_ms, {key, ...}, {key, ...}}: keys on the list, and keys that left it

-- More milliseconds than any clock shows until 2109. The product with the highest rank still fits a double exactly.
local RANK = 4398046511104

local key, changed = KEYS[1], KEYS[2]
local since = tonumber(ARGV[1])
replace_others('zset', KEYS)

local function drop(gone)
  for _, member in ipairs(gone) do
    redis.call('ZREM', key, member)
    redis.call('ZADD', changed, whole(now_ms), member)
  end
end
-- Drop the keys that have ended, rank by rank, and those whose end is too far ahead: the clock has stepped back since.
local above = '-inf'
for rank = 0, RANK_MAX do
  local over = rank * RANK + now_ms
  drop(redis.call('ZRANGEBYSCORE', key, above, whole(over)))
  above = '(' .. whole(over + LISTED_MS)
end
drop(redis.call('ZRANGEBYSCORE', key, above, '+inf'))

-- On a full list, a new key replaces one of a lower rank; if there is none, it is not added.
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
    redis.call('ZADD', key, whole(rank * RANK + now_ms + LISTED_MS), member)
    if first and first[1] == member then
      first = nil
    end
  end
  if not known and room > 0 then
    redis.call('ZADD', changed, whole(now_ms), member)
    room = room - 1
  end
end

redis.call('ZREMRANGEBYSCORE', changed, '-inf', whole(now_ms - CHANGES_KEPT_MS))
redis.call('ZREMRANGEBYSCORE', changed, '(' .. whole(now_ms), '+inf')
redis.call('ZREMRANGEBYRANK', changed, 0, -(2 * HOT_MAX + 1))
redis.call('PEXPIRE', key, LISTED_MS + 1000)
redis.call('PEXPIRE', changed, CHANGES_KEPT_MS)

if since == 0 then
  return {whole(now_ms), redis.call('ZRANGE', key, 0, -1), {}}
end
local on, off = {}, {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', changed, whole(since), '+inf')) do
  local to = redis.call('ZSCORE', key, member) and on or off
  to[#to + 1] = member
end
return {whole(now_ms), on, off}
