-- Records that a POP is alive and counts the live POPs.
--
-- KEYS[1]   the fleet, a sorted set: POPs by the time of their last report, in microseconds
-- ARGV[1]   the POP's name
-- ARGV[2]   time for which a silent POP counts as alive, in microseconds
--
-- Returns   the number of live POPs, at least 1
--
-- The limits in capitals are defined in lines before this text.

local key, pop, ttl_us = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local added = redis.pcall('ZADD', key, string.format('%.0f', now), pop)
if type(added) == 'table' and added.err then
  redis.call('DEL', key)
  redis.call('ZADD', key, string.format('%.0f', now), pop)
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now - ttl_us))
-- A report in the future: the clock has stepped back since.
redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + ttl_us), '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(POPS_MAX + 1))
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(ttl_us / 1000) + 1000))
return redis.call('ZCARD', key)
