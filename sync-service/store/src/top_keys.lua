-- Stores the top keys of a weir-sync for some time, or returns those of all.
--
-- KEYS[1]   a hash: top keys as text, by the weir-sync's name
-- KEYS[2]   a sorted set: names by the time at which their top keys were stored, in milliseconds
-- ARGV[1..] nothing, to read all; or the name of a weir-sync, and its text, which is removed if empty
--
-- Returns   {name, text, name, text, ...} when reading, else {}

local texts, times = KEYS[1], KEYS[2]
replace_others('hash', {texts})
replace_others('zset', {times})

local function drop(gone)
  for _, replica in ipairs(gone) do
    redis.call('HDEL', texts, replica)
    redis.call('ZREM', times, replica)
  end
end
if ARGV[1] then
  if ARGV[2] == '' then
    drop({ARGV[1]})
  else
    redis.call('HSET', texts, ARGV[1], ARGV[2])
    redis.call('ZADD', times, whole(now_ms), ARGV[1])
    redis.call('PEXPIRE', texts, KEPT_MS + 1000)
    redis.call('PEXPIRE', times, KEPT_MS + 1000)
  end
end
drop(redis.call('ZRANGEBYSCORE', times, '-inf', whole(now_ms - KEPT_MS)))
-- Times in the future: the clock has stepped back since.
drop(redis.call('ZRANGEBYSCORE', times, '(' .. whole(now_ms), '+inf'))
local over = redis.call('ZCARD', times) - REPLICAS_MAX
if over > 0 then
  drop(redis.call('ZRANGE', times, 0, over - 1))
end
if ARGV[1] then
  return {}
end
local all = {}
for _, replica in ipairs(redis.call('ZRANGE', times, 0, -1)) do
  all[#all + 1] = replica
  all[#all + 1] = redis.call('HGET', texts, replica) or ''
end
return all
