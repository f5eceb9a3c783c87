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
-- The maxima in capitals, from the constants of weir_budget, and holders.lua are set in front of this text.

local token_us, token_ns, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held_us = tonumber(ARGV[5])
local FIRST = 6

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

local HEAD = {'deficit_us', 'deficit_ns', 'at_us', 'outstanding', 'next_us', 'last_us'}
local head = read_budget(HEAD, FIRST) or {0, 0, now, 0, COUNT_MAX, now, is_new = true}
local deficit_us, deficit_ns, at, outstanding, next_us, last_us = unpack(head, 1, #HEAD)
if head.is_new and redis.call('DEL', key) > 0 then
  -- Something else lay under our name, and what was given is unknown: it may have been everything.
  deficit_us, deficit_ns = price(burst)
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
    step_back(at - now)
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

local given = 0

-- Answers one claim: all that was debited for its epoch, and how long to wait for more.
local function answer(field, spent, ahead)
  local holder, more = claimed(field, spent, ahead)
  if not holder then
    return REFUSED, 0
  end
  outstanding = outstanding - more
  if ahead == 0 then
    local unspent = give_back(field, holder)
    local us, ns = price(unspent)
    if longer(us, ns, deficit_us, deficit_ns) then
      deficit_us, deficit_ns = 0, 0
    else
      deficit_ns = deficit_ns - ns
      deficit_us = deficit_us - us + math.floor(deficit_ns / 1000)
      deficit_ns = deficit_ns % 1000
    end
    outstanding = outstanding - unspent
    return REFUSED, 0
  end
  local need = needed(holder, spent, ahead)
  local tokens = need > 0 and math.min(need, level()) or 0
  local us, ns = price(tokens)
  deficit_ns = deficit_ns + ns
  deficit_us = deficit_us + us + math.floor(deficit_ns / 1000)
  deficit_ns = deficit_ns % 1000
  given, outstanding = given + tokens, outstanding + tokens
  if lease(field, holder, tokens, now + held_us) then
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
  local charged, wait = answer(field_of(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  answers[#answers + 1], waits[#waits + 1] = charged, wait
end
write(HEAD, {deficit_us, deficit_ns, now, outstanding, next_us, last_us})

-- Keep it until it is full with nothing leased, and until late reports have come.
local kept_us = math.max(0, last_us - now) + deficit_us + (deficit_ns > 0 and 1 or 0) + ENDED_KEPT_US
redis.call('PEXPIRE', key, whole(math.ceil(kept_us / 1000)))
return {deficit_us, deficit_ns, outstanding, given, now, answers, waits}
