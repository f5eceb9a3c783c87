-- Adds a region's bans and resets to the list that all regions share, and returns the recent changes of the list, or
-- all of it. The same as weir_budget::ban::BanList::exchange.
--
-- KEYS[1]   the list, a sorted set: keys by the end of their ban in microseconds; reset keys by the time until which
--           the reset is sent
-- KEYS[2]   a sorted set of the same keys by the time of their latest change, in microseconds
-- ARGV[1]   time from which to return changes, in microseconds; 0 for the whole list
-- ARGV[2..] two per key: the length of its ban or reset in microseconds, after a ! if an operator bans it; and its
--           text form (weir_budget::ban::BannedKey)
--
-- Returns   {now_us, {key, until_us, key, until_us, ...}}

local key, changed = KEYS[1], KEYS[2]
local since = tonumber(ARGV[1])
replace_others('zset', KEYS)

local function drop(gone)
  for _, member in ipairs(gone) do
    redis.call('ZREM', key, member)
    redis.call('ZREM', changed, member)
  end
end
local function score(member)
  return tonumber(redis.call('ZSCORE', key, member) or nil)
end
local function put(member, until_us)
  redis.call('ZADD', key, whole(until_us), member)
  redis.call('ZADD', changed, whole(now_us), member)
end
local function is_forgotten(member)
  return string.sub(member, -#FORGOTTEN) == FORGOTTEN
end

drop(redis.call('ZRANGEBYSCORE', key, '-inf', whole(now_us)))
for i = 2, #ARGV, 2 do
  local is_by_operator = string.sub(ARGV[i], 1, 1) == '!'
  local member, until_us = ARGV[i + 1], now_us + tonumber(string.sub(ARGV[i], is_by_operator and 2 or 1))
  if is_forgotten(member) then
    drop({string.sub(member, 1, -#FORGOTTEN - 1)})
    put(member, until_us)
  elseif is_by_operator then
    drop({member .. FORGOTTEN})
    put(member, until_us)
  elseif not score(member .. FORGOTTEN) then
    local known = score(member)
    if not known or until_us > known then
      put(member, until_us)
    end
  end
end
drop(redis.call('ZRANGEBYSCORE', key, '-inf', whole(now_us)))
-- An end too far ahead: the clock has stepped back since.
drop(redis.call('ZRANGEBYSCORE', key, '(' .. whole(now_us + BAN_US_MAX), '+inf'))
local over = redis.call('ZCARD', key) - BANS_KEPT_MAX
if over > 0 then
  -- Bans are dropped before resets. Resets end soon, so they are among the first of all.
  local bans, others = {}, {}
  for _, member in ipairs(redis.call('ZRANGE', key, 0, over + 999)) do
    table.insert(is_forgotten(member) and others or bans, member)
    if #bans == over then
      break
    end
  end
  for _, member in ipairs(others) do
    if #bans < over then
      table.insert(bans, member)
    end
  end
  drop(bans)
end

local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
if last[2] then
  local kept_ms = whole(math.ceil((tonumber(last[2]) - now_us) / 1000) + 1000)
  redis.call('PEXPIRE', key, kept_ms)
  redis.call('PEXPIRE', changed, kept_ms)
end

local changes = {}
local function add(member, until_us)
  changes[#changes + 1] = member
  changes[#changes + 1] = whole(tonumber(until_us))
end
if since == 0 then
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    add(all[i], all[i + 1])
  end
else
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', changed, whole(since), '+inf')) do
    local until_us = redis.call('ZSCORE', key, member)
    if until_us then
      add(member, until_us)
    end
  end
end
return {whole(now_us), changes}
