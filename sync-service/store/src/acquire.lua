-- Acquires tokens of one strict budget: the same as weir_budget::escrow::Escrow::acquire, atomically and by
-- Redis's clock.
--
-- KEYS[1]   the budget, a hash:
--             deficit_us, deficit_ns  nanoseconds of refill until full, split so that a double holds each part
--                                     exactly; of a window, a microsecond for each token that was debited in it and
--                                     not given back; of a log, a microsecond for each token that counts
--             end_us                  end of the window; 0 with continuous refill
--             before                  of a sliding window, tokens debited in the previous window and not given back
--             log                     of a log, "<until_us> <tokens> " for each group of spent tokens that count, by
--                                     time
--             at_us                   time of the last acquire
--             outstanding             tokens leased and not known to be spent
--             next_us                 time before which no lease ends
--             last_us                 time after which no lease ends
--             holder:<epoch>:<pop>    "<charged> <spent> <until_us>", for each epoch with leased tokens
-- ARGV[1]   the POP that claims
-- ARGV[2]   whole microseconds in which a token refills
-- ARGV[3]   and the nanoseconds beyond them, below 1000
-- ARGV[4]   tokens of the full budget
-- ARGV[5]   length of a lease for the POP, in microseconds
-- ARGV[6]   time for which leased tokens count as outstanding, in microseconds
-- ARGV[7]   the refill policy: 'steady' (continuous), 'window', 'sliding', 'log' or 'turns' (a queue), which refills
--           continuously, too, and leases nothing
-- ARGV[8]   maximum length of windows in microseconds; of a log, the time for which a spent token counts (0 for
--           requests in flight: a place is free once its POP reports it as spent)
-- ARGV[9]   start of one of the windows after 1970, in microseconds; -1 if they differ in length
-- ARGV[10..12] if they differ, their boundaries by the clock of the weir-sync that acquires: the start of one, its end,
--           and the end of the next one
-- ARGV[13]  wait before asking again for tokens of a window, or places, that others hold, in microseconds
-- ARGV[14]  time for which a window is kept after its end, in microseconds
-- ARGV[15..] five per claim: epoch (16 hex digits), or 'take', 'charge' or 'refund' for claims that lease nothing;
--           tokens spent; tokens wanted beyond them (0 gives the epoch back); and if a request holds the epoch, the
--           length of its lease for the POP and the time for which its tokens count as outstanding, in microseconds,
--           else 0 and 0
-- and last, the caller's bounds on the store's clock, in microseconds (weir_budget::store_clock): the latest time
--           that it can show; the time at which its latest jump was observed; and the length of all its jumps
--
-- Returns   {deficit_us, deficit_ns, outstanding, given, now_us, left, {charged or -1 per claim},
--           {milliseconds to wait for more per claim, 0 if it got all; in a queue, for its turn},
--           {milliseconds of its lease per claim}};
--           or, if the clock is past its latest possible time, the error "LATE <now_us>", and nothing is written
--
-- The limits in capitals are constants of weir_budget, defined in lines before this text.

local key, pop = KEYS[1], ARGV[1]
local token_us, token_ns, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local leased_us, held_us = tonumber(ARGV[5]), tonumber(ARGV[6])
local is_turns, is_sliding, is_log = ARGV[7] == 'turns', ARGV[7] == 'sliding', ARGV[7] == 'log'
local is_steady = is_turns or ARGV[7] == 'steady'
local longest_us, phase = tonumber(ARGV[8]), tonumber(ARGV[9])
local ask_again_us, window_kept_us = tonumber(ARGV[13]), tonumber(ARGV[14])
local BOUNDARY, FIRST, EACH, LAST, REFUSED = 10, 15, 5, #ARGV - 3, -1
local AT_ONCE = {take = true, charge = true, refund = true}
local latest, jump_seen, jumped = tonumber(ARGV[LAST + 1]), tonumber(ARGV[LAST + 2]), tonumber(ARGV[LAST + 3])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- The caller can tell a jump of the clock from a late call, and repeats the call if it still waits.
if now > latest then
  return {err = string.format('LATE %.0f', now)}
end

-- Known epochs by field name, the total number of epochs, and the epochs to write.
local holders, holders_len, updates = {}, 0, {}

-- tostring() keeps only 14 digits.
local function whole(number)
  return string.format('%.0f', number)
end

local function field_of(epoch)
  return 'holder:' .. epoch .. ':' .. pop
end

local function read(field, text)
  local charged, spent, until_us = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  if charged and not holders[field] then
    holders[field] = {tonumber(charged), tonumber(spent), tonumber(until_us)}
  end
end

local HEAD = {'deficit_us', 'deficit_ns', 'end_us', 'at_us', 'outstanding', 'next_us', 'last_us'}
if is_sliding or is_log then
  HEAD[#HEAD + 1] = is_sliding and 'before' or 'log'
end

-- Reads the budget's numbers, its log and the claims' epochs; nil if a number or the log is missing.
-- `outstanding` is a sum over all epochs that holds until the next lease may end. So most acquires cost the same,
-- however many epochs there are.
local function read_budget()
  local fields = {unpack(HEAD)}
  for i = FIRST, LAST, EACH do
    fields[#fields + 1] = not AT_ONCE[ARGV[i]] and field_of(ARGV[i]) or nil
  end
  local known = redis.pcall('HMGET', key, unpack(fields))
  local numbers = {}
  for i = 1, #HEAD do
    numbers[i] = HEAD[i] == 'log' and (known[i] or nil) or tonumber(known[i] or nil)
    if not numbers[i] then
      return nil
    end
  end
  holders_len = redis.call('HLEN', key) - #HEAD
  for i = #HEAD + 1, #fields do
    read(fields[i], known[i])
  end
  return numbers
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

-- Part of the time since the clock showed `since` that did not pass, according to the jumps that the caller observed.
local function skipped(since)
  return math.min(since <= jump_seen and jumped or 0, math.max(0, now - since))
end

-- True if one more epoch can be recorded; if there are too many, those that ended are dropped.
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

-- True if one time, in microseconds and nanoseconds beyond them, is longer than the other.
local function longer(us, ns, than_us, than_ns)
  return us > than_us or us == than_us and ns > than_ns
end

-- Value of `tokens`, clamped to the maximum deficit.
local function price(tokens)
  local ns = tokens * token_ns
  local us = tokens * token_us + math.floor(ns / 1000)
  if us >= DEFICIT_US_MAX then
    return DEFICIT_US_MAX, 0
  end
  return us, ns % 1000
end

local head = read_budget() or {0, 0, 0, now, 0, COUNT_MAX, now, 0, is_new = true}
local deficit_us, deficit_ns, end_us, at, outstanding, next_us, last_us, before = unpack(head, 1, #HEAD)
local log = is_log and not head.is_new and before or ''
-- The key has another type, and the number of debited tokens is unknown: assume all.
local is_lost = head.is_new and redis.call('DEL', key) > 0
if is_lost then
  deficit_us, deficit_ns = price(burst)
end

-- Adds `tokens`, which may have been spent as late as `us`, to the log.
local function record_spent(us, tokens)
  if is_log and tokens > 0 then
    log = log .. whole(us + longest_us) .. ' ' .. whole(tokens) .. ' '
  end
end
-- The debited tokens may be spent until their leases end.
if is_lost then
  record_spent(now + held_us, burst)
end

-- Expiry and number of the first tokens in the log, and the position of the next entry.
local function first_of_log(from)
  local until_us, tokens, next = string.match(log, '^(%d+) (%d+) ()', from)
  return tonumber(until_us), tonumber(tokens), next
end

-- Drops the tokens that have expired.
local function fade()
  local from = 1
  local until_us, tokens, next = first_of_log(from)
  while until_us and until_us <= now do
    deficit_us, from = math.max(0, deficit_us - tokens), next
    until_us, tokens, next = first_of_log(from)
  end
  log = string.sub(log, from)
end

-- With continuous refill: refills up to a time, never to more than the burst less the outstanding tokens.
local function pass(to)
  if not is_steady then
    return
  end
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

-- A step of the clock refills nothing, and leases keep the time that they had left.
local step_us = math.min(0, now - at)
if step_us == 0 then
  step_us = skipped(at)
end
if step_us ~= 0 or now >= next_us then
  read_all()
  if step_us ~= 0 then
    for field, holder in pairs(holders) do
      holder[3] = math.max(0, holder[3] + step_us)
      updates[field] = holder
    end
    log = string.gsub(log, '(%d+) (%d+) ', function(until_us, tokens)
      return whole(math.max(0, tonumber(until_us) + step_us)) .. ' ' .. tokens .. ' '
    end)
    at = at + step_us
    -- The window is shifted by whole windows, so that it ends where windows do.
    if phase >= 0 and end_us > 0 then
      end_us = math.max(0, end_us + step_us - math.fmod(step_us, longest_us))
    end
  end
  -- Refill that a lease held up begins when the lease ends.
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
    record_spent(lease[1], lease[2])
    outstanding = outstanding - lease[2]
  end
end
pass(now)
fade()

-- End of the current window by Redis's clock: of the window that was entered, while it lasts; else, if windows
-- have one length, of the window at this time; else the next boundary, if it is near enough.
local function window_ends()
  if now < end_us then
    return end_us
  end
  if phase >= 0 then
    return now + longest_us - (now - phase) % longest_us
  end
  local ends = now
  for i = BOUNDARY + 2, BOUNDARY, -1 do
    local boundary = tonumber(ARGV[i])
    if boundary > now then
      ends = boundary
    end
  end
  return ends - now > longest_us and now or ends
end

-- Tokens that may have been spent later than at `us`: those not given back, of leases that end after it.
local function held_after(us)
  local tokens = 0
  if last_us > us then
    read_all()
    for _, holder in pairs(holders) do
      tokens = tokens + (holder[3] > us and holder[1] - holder[2] or 0)
    end
  end
  return tokens
end

-- No lease ends later than its window, even by a POP's slower clock.
local left_us, until_us = 0, now + held_us
if not (is_steady or is_log) then
  local ends = window_ends()
  left_us = ends - now
  if left_us < held_us then
    leased_us, until_us = math.floor(left_us * DRIFT_PART / (DRIFT_PART + 1)), ends
  end
  -- An acquire that leases nothing applies to the current window, however soon that ends.
  local is_of_the_moment = FIRST > LAST
  for i = FIRST, LAST, EACH do
    is_of_the_moment = is_of_the_moment or AT_ONCE[ARGV[i]]
  end
  if (leased_us >= LEASE_US_MIN or is_of_the_moment and left_us > 0) and end_us ~= ends then
    if end_us > 0 and end_us + longest_us == ends then
      before = math.min(deficit_us, TOKENS_MAX)
    else
      -- The previous window had no acquires, but tokens held by requests may have been spent in it.
      before = is_sliding and math.min(held_after(ends - 2 * longest_us), TOKENS_MAX) or 0
    end
    end_us = ends
    if not is_lost then
      deficit_us, deficit_ns = price(outstanding)
    end
  end
end
local lease_ms = math.floor(leased_us / 1000)
if is_read then
  forget(ENDED_KEPT_US)
end

-- Weight of the previous window when this one has `left` microseconds left. In whole steps, so the product is exact.
local steps = longest_us / STEP_US
local function weighed(left)
  return math.ceil(before * math.ceil(math.min(left, longest_us) / STEP_US) / steps)
end

-- Remaining time of a window at which `tokens` of the previous one start to weigh `room` or less.
local function room_at(tokens, room)
  return tokens == 0 and longest_us or math.min(longest_us, math.floor(room * steps / tokens) * STEP_US)
end

-- Time until `tokens` fit a sliding window, as Escrow::fades_us.
local function fades(tokens)
  local room = math.max(0, burst - tokens)
  if deficit_us <= room then
    return math.max(0, left_us - room_at(before, room - deficit_us))
  end
  return left_us + longest_us - room_at(deficit_us, room)
end

-- Whole tokens that may be debited. A quotient of doubles may be off by one; products are exact.
local full_us, full_ns = price(burst)
local function level()
  if is_sliding then
    return math.max(0, burst - deficit_us - weighed(math.max(0, end_us - now)))
  end
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

local function debit(tokens)
  local us, ns = price(tokens)
  deficit_ns = deficit_ns + ns
  deficit_us = deficit_us + us + math.floor(deficit_ns / 1000)
  deficit_ns = deficit_ns % 1000
end

-- Rounds a time up to whole microseconds.
local function rounded_up(us, ns)
  return us + math.ceil(ns / 1000)
end

-- Gives a turn for all wanted tokens, after all earlier turns, if the queue has places for it. Returns the same
-- as `answer`; the deficit is its only record. A claim of zero tokens gets the wait that a turn would have.
local function take_turn(spent, ahead)
  if lease_ms == 0 or spent > 0 then
    return REFUSED, 0, 0
  end
  local begins_us, begins_ns = deficit_us, deficit_ns
  debit(ahead)
  if ahead > 0 and longer(deficit_us, deficit_ns, full_us, full_ns) then
    local wait_us = rounded_up(deficit_us - full_us, deficit_ns - full_ns)
    deficit_us, deficit_ns = begins_us, begins_ns
    return 0, math.ceil(wait_us / 1000), lease_ms
  end
  given = given + ahead
  return ahead, math.ceil(rounded_up(begins_us, begins_ns) / 1000), lease_ms
end

-- Adds tokens to the deficit, up to its maximum.
local function debit_all(tokens)
  debit(tokens)
  if deficit_us >= DEFICIT_US_MAX then
    deficit_us, deficit_ns = DEFICIT_US_MAX, 0
  end
end

local function credit(tokens)
  local us, ns = price(tokens)
  if longer(us, ns, deficit_us, deficit_ns) then
    deficit_us, deficit_ns = 0, 0
  else
    deficit_ns = deficit_ns - ns
    deficit_us = deficit_us - us + math.floor(deficit_ns / 1000)
    deficit_ns = deficit_ns % 1000
  end
end

-- Ends an epoch whose request cost more than was debited, and debits the rest (Escrow::overdraw); returns the rest.
local function overdraw(field, holder, spent)
  local unspent = holder[3] > now and holder[1] - holder[2] or 0
  outstanding = outstanding - unspent
  local tokens = math.min(spent - holder[1], TOKENS_MAX)
  debit_all(tokens)
  record_spent(now, unspent + tokens)
  holder[1], holder[2], holder[3] = spent, spent, math.min(holder[3], now)
  updates[field] = holder
  return tokens
end

-- Time until the level is `tokens`, which is more than now. If other claims hold tokens of a window or places in
-- flight, it is the time to ask again; `own` is this claim's part of the outstanding tokens.
local function wait(tokens, own)
  if is_steady then
    local us, ns = price(tokens)
    return math.max(0, rounded_up(deficit_us + us - full_us, deficit_ns + ns - full_ns))
  elseif is_sliding then
    return fades(tokens)
  elseif is_log and longest_us > 0 then
    return (first_of_log(1) or now + held_us + longest_us) - now
  end
  local wait_us = is_log and (first_of_log(1) or now + ask_again_us) - now or left_us
  return outstanding > own and math.min(wait_us, ask_again_us) or wait_us
end

-- True if tokens can be consumed at once: their window must be known, and places in flight are held by requests.
local function may_take()
  return not (is_log and longest_us == 0) and (is_steady or is_log or now < end_us)
end

-- Consumes all of `tokens`, or none; a charge consumes them whatever the level is. Returns the same as `answer`.
local function take(tokens, is_charge)
  if not may_take() then
    return REFUSED, 0, 0
  end
  if not is_charge and tokens > level() then
    return 0, math.ceil(wait(tokens, outstanding) / 1000), 0
  end
  debit_all(tokens)
  record_spent(now, tokens)
  given = given + tokens
  return tokens, 0, 0
end

-- Removes up to `tokens` of those that were spent last from the log. Returns the number removed.
local function remove_from_log(tokens)
  local rest = tokens
  while rest > 0 do
    local before, until_us, last = string.match(' ' .. log, '^(.* )(%d+) (%d+) $')
    if not before then
      break
    end
    local removed = math.min(rest, tonumber(last))
    rest, log = rest - removed, string.sub(before, 2)
    if removed < tonumber(last) then
      log = log .. until_us .. ' ' .. whole(tonumber(last) - removed) .. ' '
    end
  end
  return tokens - rest
end

-- Gives tokens back, at most the deficit less the outstanding ones (Escrow::refund). Returns the same as `answer`.
local function refund(tokens)
  if is_turns or not may_take() then
    return REFUSED, 0, 0
  end
  local before_us, before_ns = deficit_us, deficit_ns
  credit(is_log and remove_from_log(tokens) or tokens)
  local us, ns = price(outstanding)
  if longer(us, ns, deficit_us, deficit_ns) then
    deficit_us, deficit_ns = us, ns
  end
  if longer(deficit_us, deficit_ns, before_us, before_ns) then
    deficit_us, deficit_ns = before_us, before_ns
  end
  return tokens, 0, 0
end

-- Handles one claim. Returns the tokens debited for its epoch, the wait for more, and its lease, both in milliseconds.
local function answer(field, spent, ahead, hold_us, hold_until_us)
  if is_turns then
    return take_turn(spent, ahead)
  end
  local holder = holders[field]
  local is_settled = holder and hold_us > 0 and ahead == 0 and now - holder[3] < ENDED_KEPT_US
  -- A request's cost is charged once: until its epoch has ended with all tokens spent.
  if is_settled and spent > holder[1] and (holder[3] > now or holder[2] < holder[1]) then
    given = given + overdraw(field, holder, spent)
    return REFUSED, 0, 0
  end
  local ms, ends_us = lease_ms, until_us
  if hold_us > 0 then
    ms, ends_us = math.floor(hold_us / 1000), now + hold_until_us
  end
  -- Leases begin again with the next window, which is near.
  if ms == 0 and ahead > 0 then
    return REFUSED, math.ceil(left_us / 1000), 0
  end
  if holder and now - holder[3] >= ENDED_KEPT_US then
    drop(field)
    holder = nil
  end
  if holder and (holder[3] <= now or spent > holder[1]) then
    return REFUSED, 0, 0
  elseif not holder then
    if spent > 0 or ahead == 0 or lease_ms == 0 or not has_room() then
      return REFUSED, 0, 0
    end
    holder = {0, 0, 0}
  end
  local more = math.max(0, spent - holder[2])
  holder[2] = holder[2] + more
  outstanding = outstanding - more
  record_spent(now, more)
  fade()
  if ahead == 0 then
    -- The epoch ends, and gives its unspent tokens back.
    local unspent = holder[1] - holder[2]
    holder[2], holder[3], updates[field] = holder[1], now, holder
    credit(unspent)
    outstanding = outstanding - unspent
    return REFUSED, 0, 0
  end
  local need = lease_ms > 0 and math.max(0, math.min(spent + ahead, COUNT_MAX) - holder[1]) or 0
  local tokens = need > 0 and math.min(need, level()) or 0
  debit(tokens)
  given, outstanding = given + tokens, outstanding + tokens
  holder[1], holder[3] = holder[1] + tokens, math.max(holder[3], ends_us)
  -- An epoch without tokens needs no record.
  if holder[1] > 0 then
    holders_len = holders_len + (holders[field] and 0 or 1)
    holders[field], updates[field] = holder, holder
    next_us, last_us = math.min(next_us, holder[3]), math.max(last_us, holder[3])
  end
  local wait_us = tokens < need and wait(1, holder[1] - holder[2]) or 0
  return holder[1], math.ceil(wait_us / 1000), ms
end

local answers, waits, leases = {}, {}, {}
for i = FIRST, LAST, EACH do
  local field, spent, ahead = field_of(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local n = #answers + 1
  if ARGV[i] == 'refund' then
    answers[n], waits[n], leases[n] = refund(ahead)
  elseif ARGV[i] == 'charge' or ARGV[i] == 'take' and not is_turns then
    answers[n], waits[n], leases[n] = take(ahead, ARGV[i] == 'charge')
  else
    answers[n], waits[n], leases[n] = answer(field, spent, ahead, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]))
  end
end

-- The tokens of a lost log count until after the last lease in it.
if is_log then
  last_us = math.max(last_us, (first_of_log(1) or 0) - longest_us)
end

-- A new budget that gave nothing needs no record.
if not head.is_new or is_lost or given > 0 then
  local written = {}
  local values = {deficit_us, deficit_ns, end_us, now, outstanding, next_us, last_us, is_log and log or before}
  for i, name in ipairs(HEAD) do
    written[#written + 1] = name
    written[#written + 1] = name == 'log' and log or whole(values[i])
  end
  for field, holder in pairs(updates) do
    -- Epochs that were shifted with the clock may have been dropped since.
    if holders[field] then
      written[#written + 1] = field
      written[#written + 1] = whole(holder[1]) .. ' ' .. whole(holder[2]) .. ' ' .. whole(holder[3])
    end
  end
  redis.call('HSET', key, unpack(written))
  -- Keep it until it is full with nothing leased and until late reports have arrived; a window, for as long as
  -- the clock may step back.
  local full_us = is_log and longest_us or deficit_us
  local kept_us = math.max(0, last_us - now) + full_us + (deficit_ns > 0 and 1 or 0) + ENDED_KEPT_US
  -- Redis expires keys by its clock, too: if it jumps ahead, only budgets that would have been full soon are lost.
  kept_us = kept_us + math.min(STEP_KEPT_US, STEP_KEPT_TIMES * full_us)
  if not (is_steady or is_log) then
    kept_us = math.max(0, end_us - now, last_us - now) + window_kept_us
  end
  redis.call('PEXPIRE', key, whole(math.ceil(kept_us / 1000)))
end
local counts_us = is_sliding and deficit_us + weighed(math.max(0, end_us - now)) or deficit_us
return {counts_us, deficit_ns, outstanding, given, now, level(), answers, waits, leases}
