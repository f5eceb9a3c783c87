-- Draws on the quota of one key in a window of the calendar: the same as weir_budget::tally::Tally::draw,
-- atomically and by Redis's clock.
--
-- KEYS[1]   the budget, a hash: used (tokens debited in the window and not given back), end_us (when the
--           window ends), at_us, outstanding (tokens leased and not known to be spent), next_us (before which
--           no lease ends), and per epoch that tokens are leased to
--           "holder:<epoch>:<pop>" = "<charged> <spent> <until_us>"
-- ARGV[1]   the POP that claims
-- ARGV[2]   tokens that a whole window has
-- ARGV[3]   for how long a POP may spend what it is given, in microseconds
-- ARGV[4]   for how long that counts as outstanding
-- ARGV[5..7] where windows begin and end, by the clock of who draws: the start of one, its end, the next
--           one's end
-- ARGV[8]   the longest that a window is, in microseconds
-- ARGV[9..] three per claim: epoch (16 hex digits), tokens spent, and how many more are wanted (none
--           gives the epoch back)
--
-- Returns   {used, outstanding, given, now_us, lease_ms, left, {charged or -1 per claim}, {wait_ms per claim}}
--
-- The maxima in capitals are set in front of this text from the constants of weir_budget.

local key, pop = KEYS[1], ARGV[1]
local count, leased_us, held_us = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local longest_us = tonumber(ARGV[8])
local BOUNDARY, BOUNDARIES, FIRST, EACH, REFUSED = 5, 3, 9, 3, -1

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- tostring() keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

-- Read the budget and the epochs that are claimed; a sum over all epochs is kept, and is true until the
-- next lease may end. So most draws cost the same however many epochs there are.
local HEAD = {'used', 'end_us', 'at_us', 'outstanding', 'next_us'}
local fields = {unpack(HEAD)}
for i = FIRST, #ARGV, EACH do
  fields[#fields + 1] = 'holder:' .. ARGV[i] .. ':' .. pop
end
local known = redis.pcall('HMGET', key, unpack(fields))
local head = {}
for i = 1, #HEAD do
  head[i] = tonumber(known[i] or nil)
end
local used, end_us, at, outstanding, next_us = unpack(head, 1, #HEAD)
local holders, holders_len, updates, is_new, is_lost = {}, 0, {}, false, false
if not (used and end_us and at and outstanding and next_us) then
  used, end_us, at, outstanding, next_us, is_new = 0, 0, now, 0, COUNT_MAX, true
  -- Something else lay under our name, and what was given is unknown: it may have been everything.
  is_lost = redis.call('DEL', key) > 0
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

if now < at or now >= next_us then
  read_all()
  -- A clock that stepped back makes no lease longer.
  if now < at then
    for field, holder in pairs(holders) do
      holder[3] = math.max(0, holder[3] - (at - now))
      updates[field] = holder
    end
  end
  outstanding, next_us = 0, COUNT_MAX
  for _, holder in pairs(holders) do
    if holder[3] > now then
      outstanding = outstanding + holder[1] - holder[2]
      next_us = math.min(next_us, holder[3])
    end
  end
  forget(ENDED_KEPT_US)
end

-- When the window ends that Redis's clock is in: the one that was entered, while it lasts; else the first
-- boundary ahead, if it is near enough.
local ends = now < end_us and end_us or nil
if not ends then
  for i = BOUNDARY + BOUNDARIES - 1, BOUNDARY, -1 do
    local boundary = tonumber(ARGV[i])
    if boundary > now then
      ends = boundary
    end
  end
  if ends and ends - now > longest_us then
    ends = nil
  end
end
local left_us = ends and ends - now or 0
-- No lease ends later than its window, even by a clock that is slower.
if left_us < held_us then
  leased_us = math.floor(left_us * DRIFT_PART / (DRIFT_PART + 1))
end
local lease_ms = math.floor(leased_us / 1000)
local is_open = lease_ms > 0
if is_open and end_us ~= ends then
  used, end_us = is_lost and count or 0, ends
end
local until_us = math.min(now + held_us, end_us)

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
    local unspent = holder[1] - holder[2]
    used, outstanding = math.max(0, used - unspent), outstanding - unspent
    holder[2], holder[3] = holder[1], now
    updates[field] = holder
    return REFUSED, 0
  end
  local need = math.max(0, math.min(spent + ahead, COUNT_MAX) - holder[1])
  local tokens = math.min(need, math.max(0, count - used))
  used, given, outstanding = used + tokens, given + tokens, outstanding + tokens
  holder[1] = holder[1] + tokens
  holder[3] = math.max(holder[3], until_us)
  if holder[1] > 0 then
    if not holders[field] then
      holders_len = holders_len + 1
    end
    holders[field], updates[field] = holder, holder
    next_us = math.min(next_us, holder[3])
  end
  local wait_us = 0
  if tokens < need then
    local is_elsewhere = outstanding > holder[1] - holder[2]
    wait_us = is_elsewhere and math.min(left_us, ASK_AGAIN_US) or left_us
  end
  return holder[1], math.ceil(wait_us / 1000)
end

local answers, waits = {}, {}
for i = FIRST, #ARGV, EACH do
  local field = 'holder:' .. ARGV[i] .. ':' .. pop
  if is_open then
    answers[#answers + 1], waits[#waits + 1] = answer(field, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  else
    answers[#answers + 1], waits[#waits + 1] = REFUSED, 0
  end
end

-- What gave nothing and was not known is worth no record.
if not is_new or is_lost or given > 0 then
  local written = {}
  for i, number in ipairs({used, end_us, now, outstanding, next_us}) do
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
  -- Keep it for its window, and for as long as the clock may step back.
  local kept_us = math.max(0, end_us - now) + WINDOW_KEPT_US
  redis.call('PEXPIRE', key, whole(math.ceil(kept_us / 1000)))
end
return {used, outstanding, given, now, lease_ms, math.max(0, count - used), answers, waits}
