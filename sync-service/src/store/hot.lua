-- Puts a region's hot keys on the list that all regions share, and returns the list: the same as
-- weir_budget::hot::HotList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by their rank, and within a rank by when they leave the list, in milliseconds
-- ARGV[1..] two for each hot key of the region: its rank, and the key as weir_budget::hot::HotKey writes itself
--
-- Returns   all that are on the list
--
-- The maxima in capitals are set in front of this text.

-- More milliseconds than any clock shows until 2109; a double holds a few times as many exactly.
local RANK = 4398046511104

local key = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local kind = redis.call('TYPE', key).ok
if kind ~= 'zset' and kind ~= 'none' then
  redis.call('DEL', key)
end
for i = 1, #ARGV, 2 do
  local score = tonumber(ARGV[i]) * RANK + now + LISTED_MS
  redis.call('ZADD', key, string.format('%.0f', score), ARGV[i + 1])
end
-- Drop what is over in each rank, and what is from the future: the clock has stepped back since.
local above = '-inf'
for rank = 0, RANK_MAX do
  local over = rank * RANK + now
  redis.call('ZREMRANGEBYSCORE', key, above, string.format('%.0f', over))
  above = string.format('(%.0f', over + LISTED_MS)
end
redis.call('ZREMRANGEBYSCORE', key, above, '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(HOT_MAX + 1))
redis.call('PEXPIRE', key, LISTED_MS + 1000)
return redis.call('ZRANGE', key, 0, -1)
