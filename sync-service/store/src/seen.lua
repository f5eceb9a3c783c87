-- Records that members of a sorted set exist: POPs, or records of their rule sets.
--
-- KEYS[1]   the sorted set: members by the time at which they were last recorded, in microseconds
-- ARGV[1]   time for which a member counts, in microseconds
-- ARGV[2]   maximum number of members; beyond it, the oldest are dropped
-- ARGV[3..] the members to record
--
-- Returns   the number of members

local key, ttl_us = KEYS[1], tonumber(ARGV[1])
replace_others('zset', KEYS)
for i = 3, #ARGV do
  redis.call('ZADD', key, whole(now_us), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. whole(now_us - ttl_us))
-- Times in the future: the clock has stepped back since.
redis.call('ZREMRANGEBYSCORE', key, '(' .. whole(now_us + ttl_us), '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(ARGV[2] + 1))
redis.call('PEXPIRE', key, whole(math.ceil(ttl_us / 1000) + 1000))
return redis.call('ZCARD', key)
