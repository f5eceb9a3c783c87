-- Puts a region's hot keys on the list that all regions share, and returns the list: the same as
-- weir_budget::hot::HotList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by until when they are on it, in microseconds
-- ARGV[1..] the region's hot keys, as weir_budget::hot::HotKey writes itself
--
-- Returns   all that are on the list
--
-- The maxima in capitals are set in front of this text.

local key = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local kind = redis.call('TYPE', key).ok
if kind ~= 'zset' and kind ~= 'none' then
  redis.call('DEL', key)
end
for i = 1, #ARGV do
  redis.call('ZADD', key, string.format('%.0f', now + LISTED_US), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
-- From the future: the clock has stepped back since.
redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + LISTED_US), '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(HOT_MAX + 1))
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(LISTED_US / 1000) + 1000))
return redis.call('ZRANGE', key, 0, -1)
