-- Consumes tokens of strict budgets: the same as acquire.lua with one take for each of them, at a third of the cost,
-- but only for simple cases, which most are. For a budget where a lease may have ended, a window begins or the clock
-- has stepped, or that acquire.lua did not write, it changes nothing and returns -1. The number of tokens does not
-- matter for that: otherwise acquire.lua might execute the first of two takes of one budget after this script executed
-- the second.
--
-- KEYS      the budgets, as acquire.lua keeps them: with continuous refill or windows
-- ARGV      four per budget: tokens wanted, all or none; tokens of the full budget; whole microseconds in which a
--           token refills, and the nanoseconds beyond them (0 and 0 for windows)
-- and last, as for acquire.lua, the caller's bounds on the store's clock
--
-- Returns   {now_us, and five per budget: 1 if the tokens were consumed, 0 if there are too few, -1 if acquire.lua has
--           to decide; deficit_us, deficit_ns, outstanding; and if there are too few, the microseconds until there
--           are enough}; or, if the clock is past its latest possible time, the error "LATE <now_us>", and nothing
--           is written
--
-- The limits in capitals are constants of weir_budget, defined in lines before this text.

local call, pcall, floor, format = redis.call, redis.pcall, math.floor, string.format
local last = #ARGV
local latest, jump_seen, jumped = tonumber(ARGV[last - 2]), tonumber(ARGV[last - 1]), tonumber(ARGV[last])

local time = call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_text = format('%.0f', now)
if now > latest then
  return {err = 'LATE ' .. now_text}
end
local NO_LEASE_ENDS = format('%.0f', COUNT_MAX)

-- Value of `tokens` in microseconds and remaining nanoseconds, clamped to the maximum deficit.
local function price(tokens, token_us, token_ns)
  local ns = tokens * token_ns
  local us = tokens * token_us + floor(ns / 1000)
  if us >= DEFICIT_US_MAX then
    return DEFICIT_US_MAX, 0
  end
  return us, ns % 1000
end

-- True if there is nothing under this name, so that the budget is full.
local function is_new(key, known)
  for i = 1, 7 do
    if known[i] then
      return false
    end
  end
  return pcall('HLEN', key) == 0
end

-- Keeps the budget until it is full, even if the clock jumps ahead.
local function keep(key, deficit_us)
  local us = deficit_us + 1 + ENDED_KEPT_US + math.min(STEP_KEPT_US, STEP_KEPT_TIMES * deficit_us)
  call('PEXPIRE', key, format('%.0f', math.ceil(us / 1000)))
end

local function take(key, tokens, burst, token_us, token_ns)
  local refills = token_us > 0 or token_ns > 0
  local known = pcall('HMGET', key, 'deficit_us', 'deficit_ns', 'end_us', 'at_us', 'outstanding', 'next_us', 'last_us')
  local us, ns, at, outstanding, last_us = 0, 0, now, 0, 0
  if known[1] and known[2] and known[3] and known[4] and known[5] and known[6] and known[7] then
    us, ns, at, last_us = tonumber(known[1]), tonumber(known[2]), tonumber(known[4]), tonumber(known[7])
    if known[5] ~= '0' then
      outstanding = tonumber(known[5])
    end
    local ends = known[6] ~= NO_LEASE_ENDS and now >= tonumber(known[6])
    local is_other = refills and known[3] ~= '0' or not refills and now >= tonumber(known[3])
    if ends or is_other or now < at or jumped > 0 and at <= jump_seen then
      return -1, 0, 0, 0, 0
    end
  elseif not (refills and is_new(key, known)) then
    return -1, 0, 0, 0, 0
  end
  if refills then
    if us < now - at then
      us, ns = 0, 0
    else
      us = us - (now - at)
    end
  else
    token_us = 1
  end
  local is_held_up = false
  if refills and outstanding > 0 then
    local held_us, held_ns = price(outstanding, token_us, token_ns)
    if held_us > us or held_us == us and held_ns > ns then
      us, ns, is_held_up = held_us, held_ns, true
    end
  end
  local full_us, full_ns = price(burst, token_us, token_ns)
  local more_us, more_ns = price(tokens, token_us, token_ns)
  more_us, more_ns = us + more_us, ns + more_ns
  if more_ns >= 1000 then
    more_us, more_ns = more_us + 1, more_ns - 1000
  end
  local got, wait_us = 1, 0
  if tokens > 0 and (more_us > full_us or more_us == full_us and more_ns > full_ns) then
    got, wait_us = 0, more_us - full_us + math.ceil((more_ns - full_ns) / 1000)
    if not refills then
      wait_us = tonumber(known[3]) - now
    end
    if not is_held_up then
      return got, us, ns, outstanding, wait_us
    end
    -- Refill that leases held up is not made up for, so the deficit has to be written.
    more_us, more_ns = us, ns
  end
  if last_us == 0 then
    if tokens > 0 then
      call('HSET', key, 'deficit_us', format('%.0f', more_us), 'deficit_ns', more_ns, 'end_us', 0, 'at_us', now_text,
        'outstanding', 0, 'next_us', NO_LEASE_ENDS, 'last_us', now_text)
      keep(key, more_us)
    end
  elseif refills and now + more_us + 1 + math.min(STEP_KEPT_US, STEP_KEPT_TIMES * more_us) > last_us + ENDED_KEPT_US then
    -- The key expires ENDED_KEPT_US and a margin after `last_us`, so both are extended here.
    call('HSET', key, 'deficit_us', format('%.0f', more_us), 'deficit_ns', more_ns, 'at_us', now_text,
      'last_us', format('%.0f', math.max(last_us, now)))
    keep(key, more_us + math.max(0, last_us - now))
  else
    call('HSET', key, 'deficit_us', format('%.0f', more_us), 'deficit_ns', more_ns, 'at_us', now_text)
  end
  return got, more_us, more_ns, outstanding, wait_us
end

local row = {now}
for i, key in ipairs(KEYS) do
  local at = 4 * i - 3
  local n = #row
  row[n + 1], row[n + 2], row[n + 3], row[n + 4], row[n + 5] =
    take(key, tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
end
return row
