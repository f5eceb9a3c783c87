-- Calls the commands of the other scripts, on keys of its own: a Redis that refuses any of them cannot be used.
--
-- KEYS[1]   a hash
-- KEYS[2]   a string, then a sorted set. At a single server its name would be in another slot than the hash, which a
--           node of a cluster refuses. At a node of a cluster, both are in a slot of this node.
--
-- Returns   OK, or the first error, with the command that caused it

local hash, set = KEYS[1], KEYS[2]
local refused

local function try(command, ...)
  if refused then
    return
  end
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err then
    local text = string.gsub(answer.err, ' script: %x+.*', '')
    refused = redis.error_reply(text .. ' (' .. command .. ')')
  end
end

try('TIME')
try('DEL', hash, set)
try('HSET', hash, 'here', 1, 'gone', 1)
try('HDEL', hash, 'gone')
try('HGET', hash, 'here')
try('HEXISTS', hash, 'here')
try('HMGET', hash, 'here', 'gone')
try('HGETALL', hash)
try('HLEN', hash)
try('PEXPIRE', hash, 1000)
try('SET', set, 'here', 'PX', 1000)
try('GET', set)
try('DEL', set)
try('TYPE', set)
try('ZADD', set, 1, 'a', 2, 'b', 3, 'c', 4, 'd')
try('ZREM', set, 'a')
try('ZREMRANGEBYSCORE', set, '-inf', 2)
try('ZREMRANGEBYRANK', set, 0, -2)
try('ZCARD', set)
try('ZSCORE', set, 'd')
try('ZRANGE', set, 0, -1)
try('ZREVRANGE', set, 0, 0)
try('ZRANGEBYSCORE', set, '-inf', '+inf')
try('PEXPIRE', set, 1000)
return refused or redis.status_reply('OK')
