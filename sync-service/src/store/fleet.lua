-- Stores the rule sets that POPs run.
--
-- KEYS[1]   the notes, a sorted set: `<region>/<replica> <version> <refused> <pop>` by the time at which they were
--           stored, in microseconds
-- ARGV[1]   time for which a note counts, in microseconds
-- ARGV[2..] the notes
--
-- The limits in capitals are defined in lines before this text.

local key, ttl_us = KEYS[1], tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local kind = redis.call('TYPE', key).ok
if kind ~= 'zset' and kind ~= 'none' then
  redis.call('DEL', key)
end
for i = 2, #ARGV do
  redis.call('ZADD', key, string.format('%.0f', now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now - ttl_us))
-- Times in the future: the clock has stepped back since.
redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + ttl_us), '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(NOTES_MAX + 1))
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(ttl_us / 1000) + 1000))
