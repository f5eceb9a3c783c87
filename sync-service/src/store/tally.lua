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
-- ARGV[5..7] where windows begin and end, by the clock of the weir-sync that draws: the start of one, its end, the next
--           one's end
-- ARGV[8]   the longest that a window is, in microseconds
-- ARGV[9..] three per claim: epoch (16 hex digits), tokens spent, and how many more are wanted (none
--           gives the epoch back)
--
-- Returns   {used, outstanding, given, now_us, lease_ms, left, {charged or -1 per claim}, {wait_ms per claim}}
--
-- The maxima in capitals, from the constants of weir_budget, and holders.lua are set in front of this text.

local count, leased_us, held_us = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local longest_us = tonumber(ARGV[8])
local BOUNDARY, BOUNDARIES, FIRST = 5, 3, 9

local HEAD = {'used', 'end_us', 'at_us', 'outstanding', 'next_us'}
local head = read_budget(HEAD, FIRST) or {0, 0, now, 0, COUNT_MAX, is_new = true}
local used, end_us, at, outstanding, next_us = unpack(head, 1, #HEAD)
-- Something else lay under our name, and what was given is unknown: it may have been everything.
local is_lost = head.is_new and redis.call('DEL', key) > 0

if now < at or now >= next_us then
  read_all()
  if now < at then
    step_back(at - now)
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
    used, outstanding = math.max(0, used - unspent), outstanding - unspent
    return REFUSED, 0
  end
  local need = needed(holder, spent, ahead)
  local tokens = math.min(need, math.max(0, count - used))
  used, given, outstanding = used + tokens, given + tokens, outstanding + tokens
  if lease(field, holder, tokens, until_us) then
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
  local charged, wait = REFUSED, 0
  if is_open then
    charged, wait = answer(field_of(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  end
  answers[#answers + 1], waits[#waits + 1] = charged, wait
end

-- What gave nothing and was not known is worth no record.
if not head.is_new or is_lost or given > 0 then
  write(HEAD, {used, end_us, now, outstanding, next_us})
  -- Keep it for its window, and for as long as the clock may step back.
  local kept_us = math.max(0, end_us - now) + WINDOW_KEPT_US
  redis.call('PEXPIRE', key, whole(math.ceil(kept_us / 1000)))
end
return {used, outstanding, given, now, lease_ms, math.max(0, count - used), answers, waits}
