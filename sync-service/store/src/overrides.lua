-- Drops the overrides that have ended, changes one, and returns all.
--
-- KEYS[1]   the rule sets, a hash: current (a version), overrides (the number of the overrides), and while a canary
--           runs, canary (its number)
-- KEYS[2]   the overrides, a hash in the same slot: name to `<id> <put at> <ends at> <text>`, both times in
--           milliseconds since 1970
-- ARGV[1]   put, drop, or empty to change nothing
-- ARGV[2]   the override's name
-- ARGV[3]   to put: its text
-- ARGV[4]   its length in milliseconds, ...
-- ARGV[5]   ... or, if that is empty, its end in milliseconds since 1970
--
-- Returns   {the current version or 0, the overrides' number, the canary's number or 0, now in milliseconds, the
--           result, {name, value, name, value, ...}}; the result is 0 if the change was made, 1 if there is no room,
--           or 2 if there is no override with that name

local rules, key = KEYS[1], KEYS[2]
local what, name, text, for_ms, until_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local known = redis.call('HMGET', rules, 'current', 'overrides', 'canary')
local number = tonumber(known[2] or '0')
-- One of two numbers is reserved for the canary's revision.
local step = known[3] and 2 or 1

local function next_number()
  number = number > 0 and number + step or now_ms
  redis.call('HSET', rules, 'overrides', whole(number))
end

local function ends_at(value)
  return tonumber(string.match(value, '^%d+ %d+ (%d+) ') or '0')
end

local outcome = 0
if what == 'drop' then
  if redis.call('HDEL', key, name) == 1 then
    next_number()
  else
    outcome = 2
  end
elseif what == 'put' then
  if redis.call('HEXISTS', key, name) == 0 and redis.call('HLEN', key) >= OVERRIDES_MAX then
    outcome = 1
  else
    next_number()
    local ends = for_ms ~= '' and now_ms + tonumber(for_ms) or tonumber(until_ms)
    redis.call('HSET', key, name, whole(number) .. ' ' .. whole(now_ms) .. ' ' .. whole(ends) .. ' ' .. text)
  end
end

local all, kept, is_over = redis.call('HGETALL', key), {}, false
for i = 1, #all, 2 do
  if ends_at(all[i + 1]) <= now_ms then
    redis.call('HDEL', key, all[i])
    is_over = true
  else
    kept[#kept + 1] = all[i]
    kept[#kept + 1] = all[i + 1]
  end
end
if is_over then
  next_number()
end
return {tonumber(known[1] or '0'), whole(number), tonumber(known[3] or '0'), whole(now_ms), outcome, kept}
