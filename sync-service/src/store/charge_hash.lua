-- Charges one budget that is kept as the version before keeps it; only while a weir-sync of that version is there. For all else,
-- see charge.lua, which this does the same as.
--
-- KEYS[1]   the budget, a hash; its times are on its own clock, in microseconds:
--             deficit_us, deficit_ns  the refill until full, in two parts that a double holds exactly
--             at_us                   when it was last charged
--             clock                   "ahead doubt": how far its clock is ahead of the store's, and how much time of
--                                     the store's was put off
--             members                 "region=milli,askers,at_us;"...
--             spill                   "from to;"...: when a full budget lost its refill and nobody claimed it
--             spread                  "bursts until before": how many bursts deep it went, until when to remember that,
--                                     and what was remembered when the current overshoot began
--             token                   "us ns": how long a token took to refill at the last charge
--             source:<epoch>:<pop>    "<admitted> <seen_us> <made_ms> <delay_us>", for each source
-- ARGV[1]   the member that charges: a region, or "region/replica"
-- ARGV[2]   its demand, thousandths of a token per second
-- ARGV[3]   how many of its POPs are asked
-- ARGV[4]   whole microseconds in which a token refills
-- ARGV[5]   and the nanoseconds beyond them, below 1000
-- ARGV[6]   whole microseconds in which an empty budget fills, rounded up
-- ARGV[7]   the POP whose counts follow
-- ARGV[8..] six per count: epoch (16 hex digits), tokens admitted, the unconfirmed part of them, how
--           many microseconds ago the first that is not on record may have been admitted, how many
--           tokens the POP's own bucket has not refilled since, and when the report was made, in
--           milliseconds of the POP's clock
-- and last, what the caller knows of the store's clock, in microseconds (weir_budget::store_clock): the latest that it can
--           show; what it showed when it was seen to have jumped, and how far it has
--
-- Returns   {deficit_us, deficit_ns, spread, charged, now_us, members}; or, if the clock
--           shows more than it can, the error "LATE <now_us>", and nothing is written
--
-- The numbers in capitals are set in front of this text from the constants of weir_budget.

local key, region, pop = KEYS[1], ARGV[1], ARGV[7]
local token_us, token_ns, fill_us = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local FIXED, FIRST, EACH, LAST = 8, 8, 6, #ARGV - 3
local latest, jump_seen, jumped = tonumber(ARGV[LAST + 1]), tonumber(ARGV[LAST + 2]), tonumber(ARGV[LAST + 3])

local time = redis.call('TIME')
local store_now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- The clock has jumped, or the caller has given up since. It knows which, and asks again if it still wants to.
if store_now > latest then
  return {err = string.format('LATE %.0f', store_now)}
end

-- tostring() keeps 14 digits only.
local function whole(number)
  return string.format('%.0f', number)
end

-- What a weir-sync of this version kept is taken over, once.
local packed_key = string.gsub(key, ':', ':budget:', 1)
local packed = redis.pcall('GET', packed_key)
if packed and not packed.err and string.sub(packed, 1, 2) == 'W2' and #packed >= HEAD_BYTES then
  local read, sub = struct.unpack, string.sub
  local _, us, ns, at_us, ahead_us, doubt_us, bursts, until_us, before, token, rest, _, spans, sources, members, all =
    read('<c2dddddddddddI1I3I3I4', packed)
  redis.call('DEL', packed_key)
  -- A rollback leaves strings behind: the hash that was charged since is the budget. At a start the two may be charged for a moment.
  local row = redis.pcall('HMGET', key, 'at_us', 'clock')
  local hash_at = (tonumber(row[1] or 0) or 0) - (tonumber(string.match(row[2] or '', '^(%-?%d+) ') or 0))
  if all == #packed and hash_at <= at_us - ahead_us + DELAY_US_MAX then
    local place, spilled, says, kept = HEAD_BYTES + 1, {}, {}, {}
    for i = 1, spans do
      local from, to
      from, to, place = read('<dd', packed, place)
      spilled[i] = whole(from) .. ' ' .. whole(to) .. ';'
    end
    local sources_at = place + members
    while place < sources_at do
      local name, milli, askers, spoke
      name, milli, askers, spoke, place = read('<Bc0ddd', packed, place)
      says[#says + 1] = name .. '=' .. whole(milli) .. ',' .. whole(askers) .. ',' .. whole(spoke) .. ';'
    end
    for i = 1, sources do
      local _, last, epoch, pop = string.find(packed, '^\n(................)([^\n]*)\n', place)
      local admitted, seen, made, delay
      admitted, seen, made, delay, place = read('<dddd', packed, last + 1)
      kept[2 * i - 1] = 'source:' .. epoch .. ':' .. pop
      kept[2 * i] = whole(admitted) .. ' ' .. whole(seen) .. ' ' .. whole(made) .. ' ' .. whole(delay)
    end
    redis.call('DEL', key)
    redis.call('HSET', key, 'deficit_us', whole(us), 'deficit_ns', whole(ns), 'at_us', whole(at_us), 'clock',
      whole(ahead_us) .. ' ' .. whole(doubt_us), 'members', table.concat(says), 'spill', table.concat(spilled), 'spread',
      whole(bursts) .. ' ' .. whole(until_us) .. ' ' .. whole(before), 'token', whole(token) .. ' ' .. whole(rest))
    for i = 1, #kept, 1000 do
      redis.call('HSET', key, unpack(kept, i, math.min(i + 999, #kept)))
    end
  end
end

local fields = {'deficit_us', 'deficit_ns', 'at_us', 'members', 'spill', 'spread', 'token', 'clock'}
for i = FIRST, LAST, EACH do
  fields[#fields + 1] = 'source:' .. ARGV[i] .. ':' .. pop
end
local known = redis.pcall('HMGET', key, unpack(fields))
if known.err then
  -- Something else lies under our name; a budget that nobody can charge would be worse than a new one.
  redis.call('DEL', key)
  known = {}
end

local deficit_us = tonumber(known[1] or 0) or 0
local deficit_ns = tonumber(known[2] or 0) or 0
local at = tonumber(known[3] or 0) or 0
local spills = {}
for from, to in string.gmatch(known[5] or '', '(%d+) (%d+);') do
  spills[#spills + 1] = {tonumber(from), tonumber(to)}
end
local spread, spread_until, spread_before = string.match(known[6] or '', '^(%d+) (%d+) (%d+)$')
spread, spread_until, spread_before = tonumber(spread or 0), tonumber(spread_until or 0), tonumber(spread_before or 0)

-- Drops the shortest spills, but never the latest.
local function bound_spills()
  while #spills > SPILLS_MAX do
    local shortest = 1
    for i = 2, #spills - 1 do
      if spills[i][2] - spills[i][1] < spills[shortest][2] - spills[shortest][1] then
        shortest = i
      end
    end
    table.remove(spills, shortest)
  end
end

-- The record of the source whose field is at `place`, if there is one.
local function on_record(place)
  local was, seen, last_made, delay = string.match(known[place] or '', '^(%d+) (%d+) (%d+) (%d+)$')
  return was and {tonumber(was), tonumber(seen), tonumber(last_made), tonumber(delay)}
end

-- How much of the time since the store's clock showed `since` never was: it jumped ahead, as the caller has seen.
local function skipped(since)
  return math.min(since <= jump_seen and jumped or 0, math.max(0, store_now - since))
end

-- The budget's own time: the store's, without its steps. A step back is no time, nor is a step forward that the caller's
-- or the POP's clock exposes. Where a budget is only looked at, more time than plausible is put off.
local ahead, doubt = string.match(known[8] or '', '^(%-?%d+) (%d+)$')
ahead, doubt = tonumber(ahead or 0), tonumber(doubt or 0)
ahead = ahead - skipped(math.max(0, at - ahead))
local told = store_now + ahead
local now, late = told, nil
for i = FIRST, LAST, EACH do
  local record = on_record(FIXED + 1 + (i - FIRST) / EACH)
  if record then
    local gap = math.max(0, tonumber(ARGV[i + 5]) - record[3]) * 1000
    local this = record[4] + math.max(0, told - record[2]) - gap
    late = math.min(late or this, this)
  end
end
local elapsed = math.max(0, told - at)
local sure = math.max(fill_us, STEP_US)
if told < at then
  now = at
elseif late and late < 0 then
  now = told + math.min(doubt, -late)
elseif late and elapsed > sure and late > sure then
  now = told - math.min(elapsed, late)
elseif not late and LAST >= FIRST then
  now = told + doubt
elseif LAST < FIRST and elapsed > math.max(fill_us, LOOK_US) and deficit_us > fill_us then
  now = at + fill_us
end
doubt = LAST >= FIRST and 0 or doubt + math.max(0, told - now)
ahead = ahead + now - told
elapsed = now - at

-- Refill, and note what a full budget loses: at most a burst, where no POP confirms that so much time has passed.
if deficit_us < elapsed then
  local from, last = at + deficit_us, spills[#spills]
  if LAST < FIRST and elapsed > sure then
    from = math.max(from, now - fill_us)
  end
  if last and last[2] >= from then
    last[2] = math.max(last[2], now)
  else
    spills[#spills + 1] = {from, now}
  end
  local kept = {}
  for _, span in ipairs(spills) do
    if now - span[2] <= SPILL_KEPT_US then
      kept[#kept + 1] = span
    end
  end
  spills = kept
  bound_spills()
  deficit_us, deficit_ns = 0, 0
else
  deficit_us = deficit_us - elapsed
end

-- Go by this quota from now on: as many tokens are missing as before, however long they take now.
local was_us, was_ns = string.match(known[7] or '', '^(%d+) (%d+)$')
was_us, was_ns = tonumber(was_us or token_us), tonumber(was_ns or token_ns)
if (was_us ~= token_us or was_ns ~= token_ns) and (deficit_us > 0 or deficit_ns > 0) then
  local missing = deficit_us / (was_us + was_ns / 1000) * (token_us + token_ns / 1000)
  deficit_us, deficit_ns = math.min(math.floor(missing), DEFICIT_US_MAX), 0
end

-- Charge what the records do not hold yet.
local charged, records, reach, missing = 0, {}, 0, 0
for i = FIRST, LAST, EACH do
  local place = FIXED + 1 + (i - FIRST) / EACH
  local field = fields[place]
  local admitted, unconfirmed, made = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 5])
  local record = records[field]
  if not record then
    record = on_record(place)
  end
  local new, since = math.min(unconfirmed, admitted), now
  if record then
    -- The POP's clock says how much time lies between two reports. If they arrive farther apart, the later one was
    -- delayed; or the store's clock has stepped, where no report is held up for so long.
    local gap = math.max(0, made - record[3])
    local passed = math.max(0, now - record[2])
    if passed - gap * 1000 > DELAY_US_MAX then
      passed = gap * 1000
    end
    local delay = math.max(0, record[4] + passed - gap * PACE_US)
    new, since = math.max(0, admitted - record[1]), gap * 1000
    record = {math.max(record[1], admitted), now, math.max(record[3], made), math.min(delay, DELAY_US_MAX)}
  else
    record = {admitted, now, made, 0}
  end
  records[field] = record
  new = math.min(CHARGE_TOKENS_MAX, new)
  charged = charged + new
  -- New tokens were admitted since the record was made; unless a POP cannot admit so many in that time: then the record
  -- was late.
  local least = new * token_us + math.floor(new * token_ns / 1000) - fill_us
  -- The POP has heard that some of them were charged, so the store has forgotten that: the report's span begins after it.
  local forgotten_us = new > unconfirmed and FORGOTTEN_US_MAX or 0
  local span = math.min(tonumber(ARGV[i + 3]) + forgotten_us, math.max(since, least))
  if new > 0 then
    reach = math.max(reach, span + record[4] + math.min(span, LENIENCE_US))
  end
  missing = missing + tonumber(ARGV[i + 4])
end
charged = math.min(charged, CHARGE_TOKENS_MAX)
local price_ns = charged * token_ns
local price_us = charged * token_us + math.floor(price_ns / 1000)

-- A report speaks of the past: what spilled within its span pays for it first, except for tokens that the POP's own
-- bucket still lacks.
local refilled = math.max(0, charged - missing)
local refilled_us = refilled * token_us + math.floor(refilled * token_ns / 1000)
local since, paid, left = math.max(0, now - reach), 0, {}
for _, span in ipairs(spills) do
  local from = math.min(math.max(since, span[1]), span[2])
  local till = from + math.min(refilled_us - paid, span[2] - from)
  paid = paid + till - from
  if till == from then
    left[#left + 1] = span
  else
    if from > span[1] then
      left[#left + 1] = {span[1], from}
    end
    if span[2] > till then
      left[#left + 1] = {till, span[2]}
    end
  end
end
spills = left
bound_spills()
local ns = deficit_ns + price_ns % 1000
local cost_us = price_us - paid + math.floor(ns / 1000)
deficit_us, deficit_ns = deficit_us + math.min(cost_us, DEFICIT_US_MAX), ns % 1000
if deficit_us >= DEFICIT_US_MAX then
  deficit_us, deficit_ns = DEFICIT_US_MAX, 0
end

-- Remember how many bursts deep it went. fmod is exact where a quotient is not.
if now >= spread_until then
  spread = 0
end
local beyond = math.max(0, deficit_us - SPREAD_MOMENT_US)
local rest = math.fmod(beyond, fill_us)
local depth = math.min((beyond - rest) / fill_us + (rest > 0 and 1 or 0), SPREAD_MAX)
local debt = math.min(math.max(0, deficit_us - fill_us), SPREAD_DEBT_US_MAX)
if depth > 1 then
  if spread_before == 0 then
    spread_before = math.max(spread, 1)
  end
  local times = depth < AGAIN_MIN and 1 or spread_before
  spread = math.max(spread, math.min(depth * times, SPREAD_MAX))
  spread_until = now + debt + SPREAD_KEPT_US
else
  spread_before = 0
  spread_until = math.min(spread_until, now + debt + SPREAD_KEPT_US)
end

-- Note the member's demand, forget members that fell silent.
local members = {}
for name, milli, askers, at in string.gmatch(known[4] or '', '([^=;]+)=(%d+),(%d+),(%d+);') do
  if name ~= region and now - tonumber(at) <= MEMBER_IDLE_US then
    members[#members + 1] = {name, milli, askers, tonumber(at)}
  end
end
members[#members + 1] = {region, ARGV[2], ARGV[3], now}
table.sort(members, function(a, b)
  if a[4] ~= b[4] then
    return a[4] < b[4]
  end
  return a[1] < b[1]
end)
while #members > MEMBERS_MAX do
  table.remove(members, 1)
end
local packed, told_members = {}, {}
for i, member in ipairs(members) do
  local says = member[1] .. '=' .. member[2] .. ',' .. member[3] .. ','
  packed[i], told_members[i] = says .. whole(member[4]) .. ';', says .. whole(member[4] - ahead) .. ';'
end
packed = table.concat(packed)

local spilled = {}
for i, span in ipairs(spills) do
  spilled[i] = whole(span[1]) .. ' ' .. whole(span[2]) .. ';'
end

local updates = {'clock', whole(ahead) .. ' ' .. whole(doubt), 'token', ARGV[4] .. ' ' .. ARGV[5], 'deficit_us', whole(deficit_us), 'deficit_ns', whole(deficit_ns), 'at_us', whole(now), 'members', packed, 'spill', table.concat(spilled),
  'spread', whole(spread) .. ' ' .. whole(spread_until) .. ' ' .. whole(spread_before)}
for field, record in pairs(records) do
  updates[#updates + 1] = field
  updates[#updates + 1] = whole(record[1]) .. ' ' .. whole(record[2]) .. ' ' .. whole(record[3]) .. ' ' .. whole(record[4])
end
redis.call('HSET', key, unpack(updates))

-- Forget the sources heard of longest ago.
if redis.call('HLEN', key) > SOURCES_MAX + FIXED then
  local all, sources = redis.call('HGETALL', key), {}
  for i = 1, #all, 2 do
    local seen = string.match(all[i + 1], '^%d+ (%d+) %d+ %d+$')
    if seen and string.sub(all[i], 1, 7) == 'source:' then
      sources[#sources + 1] = {all[i], tonumber(seen)}
    end
  end
  table.sort(sources, function(a, b)
    if a[2] ~= b[2] then
      return a[2] < b[2]
    end
    return a[1] < b[1]
  end)
  for i = 1, #sources - SOURCES_KEPT do
    redis.call('HDEL', key, sources[i][1])
  end
end

local until_full_us = deficit_us + (deficit_ns > 0 and 1 or 0)
local keep_us = math.max(until_full_us + GRACE_US, spread > 0 and spread_until - now or 0)
-- The clock may step forward without forgetting a debt or a spread.
if spread > 0 or deficit_us > fill_us or deficit_us == fill_us and deficit_ns > 0 then
  keep_us = keep_us + STEP_KEPT_US
end
keep_us = math.min(keep_us, KEPT_US_MAX)
redis.call('PEXPIRE', key, whole(math.ceil(keep_us / 1000)))
return {deficit_us, deficit_ns, spread, charged, store_now, table.concat(told_members)}
