-- Draws on one strict budget: the same as weir_budget::escrow::Escrow::draw, atomically and by Redis's
-- clock.
--
-- KEYS[1]   the budget, a hash: deficit_us and deficit_ns (nanoseconds of refill until full, split so
--           that a double holds each part exactly), at_us, outstanding (tokens leased and not known to be
--           spent), next_us (before which no lease ends), last_us (after which none does), and per epoch
--           that tokens are leased to "holder:<epoch>:<pop>" = "<charged> <spent> <until_us>"
-- ARGV[1]   the POP that claims
-- ARGV[2]   whole microseconds in which a token refills
-- ARGV[3]   and the nanoseconds beyond them, below 1000
-- ARGV[4]   tokens that the full budget holds
-- ARGV[5]   for how long what is given counts as outstanding, in microseconds
-- ARGV[6..] three per claim: epoch (16 hex digits), tokens spent, and how many more are wanted (none
--           gives the epoch back)
--
-- Returns   {deficit_us, deficit_ns, outstanding, given, now_us, {charged or -1 per claim},
--            {milliseconds to wait for more per claim, 0 where it got all}}
--
-- The maxima in capitals are set in front of this text from the constants of weir_budget.

local key, pop = KEYS[1], ARGV[1]
local token_us, token_ns, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held_us = tonumber(ARGV[5])
local FIRST, EACH, REFUSED = 6, 3, -1

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- tostring() keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

-- Whether one time, in microseconds and nanoseconds beyond them, is longer than another.
local function longer(us, ns, than_us, than_ns)
  return us > than_us or us == than_us and ns > than_ns
end

-- What tokens are worth, within what a deficit holds.
local function price(tokens)
  local ns = tokens * token_ns
  local us = tokens * token_us + math.floor(ns / 1000)
  if us >= DEFICIT_US_MAX then
    return DEFICIT_US_MAX, 0
  end
  return us, ns % 1000
end

-- Read the budget and the epochs that are claimed; a sum over all epochs is kept, and is true until the
-- next lease may end. So most draws cost the same however many epochs there are.
local HEAD = {'deficit_us', 'deficit_ns', 'at_us', 'outstanding', 'next_us', 'last_us'}
local fields = {unpack(HEAD)}
for i = FIRST, #ARGV, EACH do
  fields[#fields + 1] = 'holder:' .. ARGV[i] .. ':' .. pop
end
local known = redis.pcall('HMGET', key, unpack(fields))
local head = {}
for i = 1, #HEAD do
  head[i] = tonumber(known[i] or nil)
end
local deficit_us, deficit_ns, at, outstanding, next_us, last_us = unpack(head, 1, #HEAD)
local holders, holders_len, updates = {}, 0, {}
if not (deficit_us and deficit_ns and at and outstanding and next_us and last_us) then
  deficit_us, deficit_ns, at, outstanding, next_us, last_us = 0, 0, now, 0, COUNT_MAX, now
  if redis.call('DEL', key) > 0 then
    -- Something else lay under our name, and what was given is unknown: it may have been everything.
    deficit_us, deficit_ns = price(burst)
  end
  known = {}
else
  holders_len = redis.call('HLEN', key) - #HEAD
end

local function read(field, text)
  local charged, spent, until_us = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  if charged and not holders[field] then
    holders[field] = {tonumber(charged), tonumber(spent), tonumber(until_us)}
  end
end
for i = #HEAD + 1, #fields do
  read(fields[i], known[i])
end

local is_read = false
local function read_all()
  local all = is_read and {} or redis.call('HGETALL', key)
  is_read = true
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 7) == 'holder:' then
      read(all[i], all[i + 1])
    end
  end
end

local function drop(field)
  holders[field] = nil
  holders_len = holders_len - 1
  redis.call('HDEL', key, field)
end

local function forget(ended_us)
  for field, holder in pairs(holders) do
    if now - holder[3] >= ended_us then
      drop(field)
    end
  end
end

-- Refills up to a time, never to more than the burst less what is outstanding.
local function pass(to)
  if deficit_us < to - at then
    deficit_us, deficit_ns = 0, 0
  else
    deficit_us = deficit_us - (to - at)
  end
  local us, ns = price(outstanding)
  if longer(us, ns, deficit_us, deficit_ns) then
    deficit_us, deficit_ns = us, ns
  end
  at = to
end

if now < at or now >= next_us then
  read_all()
  -- A clock that stepped back refills nothing, and the leases last as long as they had left.
  if now < at then
    for field, holder in pairs(holders) do
      holder[3] = math.max(0, holder[3] - (at - now))
      updates[field] = holder
    end
    at = now
  end
  -- What a lease held up begins to refill when it ends.
  local ends = {}
  outstanding, next_us, last_us = 0, COUNT_MAX, now
  for _, holder in pairs(holders) do
    if holder[3] > at then
      ends[#ends + 1] = {holder[3], holder[1] - holder[2]}
      outstanding = outstanding + holder[1] - holder[2]
      last_us = math.max(last_us, holder[3])
    end
  end
  table.sort(ends, function(a, b)
    return a[1] < b[1]
  end)
  for _, lease in ipairs(ends) do
    if lease[1] > now then
      next_us = lease[1]
      break
    end
    pass(lease[1])
    outstanding = outstanding - lease[2]
  end
  forget(ENDED_KEPT_US)
end
pass(now)

-- Whole tokens that may be given. A quotient of doubles may be off by one; products are exact.
local full_us, full_ns = price(burst)
local function level()
  if not longer(full_us, full_ns, deficit_us, deficit_ns) then
    return 0
  end
  local us, ns = full_us - deficit_us, full_ns - deficit_ns
  local function covers(tokens)
    local price_us, price_ns = price(tokens)
    return not longer(price_us, price_ns, ns < 0 and us - 1 or us, ns % 1000)
  end
  local tokens = math.floor((us * 1000 + ns) / (token_us * 1000 + token_ns))
  while not covers(tokens) do
    tokens = tokens - 1
  end
  while covers(tokens + 1) do
    tokens = tokens + 1
  end
  return tokens
end

-- Whether one more epoch can be put on record; where it is tight, those that have ended make room.
local function has_room()
  if holders_len >= HOLDERS_MAX then
    read_all()
    forget(ENDED_KEPT_US)
  end
  if holders_len >= HOLDERS_MAX then
    forget(0)
  end
  return holders_len < HOLDERS_MAX
end

local given = 0

-- Answers one claim: all that was debited for its epoch, and how long to wait for more.
local function answer(field, spent, ahead)
  local holder = holders[field]
  if holder and now - holder[3] >= ENDED_KEPT_US then
    drop(field)
    holder = nil
  end
  if holder then
    if holder[3] <= now or spent > holder[1] then
      return REFUSED, 0
    end
  else
    if spent > 0 or ahead == 0 or not has_room() then
      return REFUSED, 0
    end
    holder = {0, 0, 0}
  end
  outstanding = outstanding - math.max(0, spent - holder[2])
  holder[2] = math.max(holder[2], spent)
  if ahead == 0 then
    local us, ns = price(holder[1] - holder[2])
    if longer(us, ns, deficit_us, deficit_ns) then
      deficit_us, deficit_ns = 0, 0
    else
      deficit_ns = deficit_ns - ns
      deficit_us = deficit_us - us + math.floor(deficit_ns / 1000)
      deficit_ns = deficit_ns % 1000
    end
    outstanding = outstanding - (holder[1] - holder[2])
    holder[2], holder[3] = holder[1], now
    updates[field] = holder
    return REFUSED, 0
  end
  local need = math.max(0, math.min(spent + ahead, COUNT_MAX) - holder[1])
  local tokens = need > 0 and math.min(need, level()) or 0
  local us, ns = price(tokens)
  deficit_ns = deficit_ns + ns
  deficit_us = deficit_us + us + math.floor(deficit_ns / 1000)
  deficit_ns = deficit_ns % 1000
  given, outstanding = given + tokens, outstanding + tokens
  holder[1] = holder[1] + tokens
  holder[3] = math.max(holder[3], now + held_us)
  if holder[1] > 0 then
    if not holders[field] then
      holders_len = holders_len + 1
    end
    holders[field], updates[field] = holder, holder
    next_us, last_us = math.min(next_us, holder[3]), math.max(last_us, holder[3])
  end
  local wait_us = 0
  if tokens < need then
    wait_us = deficit_us + token_us - full_us + math.ceil((deficit_ns + token_ns - full_ns) / 1000)
    if outstanding > holder[1] - holder[2] then
      wait_us = math.min(wait_us, ASK_AGAIN_US)
    end
  end
  return holder[1], math.ceil(wait_us / 1000)
end

local answers, waits = {}, {}
for i = FIRST, #ARGV, EACH do
  local field = 'holder:' .. ARGV[i] .. ':' .. pop
  answers[#answers + 1], waits[#waits + 1] = answer(field, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
end

local written = {}
for i, number in ipairs({deficit_us, deficit_ns, now, outstanding, next_us, last_us}) do
  written[#written + 1] = HEAD[i]
  written[#written + 1] = whole(number)
end
for field, holder in pairs(updates) do
  -- Those that the clock moved may have been forgotten since.
  if holders[field] then
    written[#written + 1] = field
    written[#written + 1] = whole(holder[1]) .. ' ' .. whole(holder[2]) .. ' ' .. whole(holder[3])
  end
end
redis.call('HSET', key, unpack(written))

-- Keep it until it is full with nothing leased, and until late reports have come.
local kept_us = math.max(0, last_us - now) + deficit_us + (deficit_ns > 0 and 1 or 0) + ENDED_KEPT_US
redis.call('PEXPIRE', key, whole(math.ceil(kept_us / 1000)))
return {deficit_us, deficit_ns, outstanding, given, now, answers, waits}
