-- Notes which rule sets POPs run, and which weir-syncs keep budgets as this version does.
--
-- KEYS[1]   the notes, a sorted set: `<region>/<replica> <version> <refused> <pop>` by when it was noted, in
--           microseconds; and `packs <region>/<replica>`, which the version before does not note
-- KEYS[2]   the answer that was worked out last, a string: `<answer> <how many notes there were>`; for a while it serves all who ask
-- ARGV[1]   for how long a note counts, in microseconds
-- ARGV[2]   1 to be told whether all keep them so
-- ARGV[3..] the notes
--
-- Returns   1 if every weir-sync that noted anything keeps budgets as this version does, 0 if not, or if that is not asked
--
-- The maxima in capitals are set in front of this text.

local key, ttl_us = KEYS[1], tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local kind = redis.call('TYPE', key).ok
if kind ~= 'zset' and kind ~= 'none' then
  redis.call('DEL', key)
end
for i = 3, #ARGV do
  redis.call('ZADD', key, string.format('%.0f', now), ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', now - ttl_us))
-- From the future: the clock has stepped back since.
redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + ttl_us), '+inf')
redis.call('ZREMRANGEBYRANK', key, 0, -(NOTES_MAX + 1))
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(ttl_us / 1000) + 1000))
if ARGV[2] ~= '1' then
  return 0
end
local shape, count = KEYS[2], redis.call('ZCARD', key)
local known = redis.pcall('GET', shape)
if known == '1 ' .. count then
  return 1
elseif known == '0 ' .. count then
  return 0
end
local packs, members = {}, {}
for _, note in ipairs(redis.call('ZRANGE', key, 0, -1)) do
  if string.sub(note, 1, 6) == 'packs ' then
    packs[string.sub(note, 7)] = true
  else
    members[string.match(note, '^(%S+) %d') or ''] = true
  end
end
members[''] = nil
local answer = 1
for member in pairs(members) do
  if not packs[member] then
    answer = 0
  end
end
redis.call('SET', shape, answer .. ' ' .. count, 'PX', SHAPE_MS)
return answer
