-- Charges one budget: the same as weir_budget::budget::Budget::charge for each POP in turn, atomically and by Redis's clock.
--
-- KEYS[1]   the budget, a string. Its numbers are doubles, which hold whole numbers to 2^53 exactly; its times are on its own
--           clock, in microseconds; all is little-endian, without padding:
--             the head, HEAD_BYTES   "W1"; deficit_us and deficit_ns, the refill until full; at, when it was last charged; ahead, how
--                                    far its clock is ahead of the store's; doubt, how much time of the store's was put off;
--                                    spread, until, before: how many bursts deep it went, until when to remember that, and what was
--                                    remembered when the current overshoot began; token_us and token_ns, how long a token took to
--                                    refill at the last charge; then, as integers, how many spills (1 byte) and sources (3) there
--                                    are, and the bytes of the members (3) and of all (4)
--             spills                 from, to: when a full budget lost its refill and nobody claimed it
--             members                the length of its name (1 byte), its name, milli, askers, at
--             sources                "\n<epoch><pop>\n" (the epoch in 16 hex digits), admitted, seen, made, delay. A name has no "\n",
--                                    and the highest byte of a double is no hex digit: so this text is nowhere else
-- ARGV[1]   the member that charges: a region, or "region/replica"
-- ARGV[2..] "\n<epoch><pop>\n" of each count, POP by POP
-- and last, doubles: what the caller knows of the store's clock, in microseconds (weir_budget::store_clock): the latest that it can
--           show, what it showed when it was seen to have jumped, and how far it has; the member's demand, thousandths of a token per
--           second; how many of its POPs are asked; whole microseconds in which a token refills, and the nanoseconds beyond them,
--           below 1000; whole microseconds in which an empty budget fills, rounded up. Then six per count: tokens
--           admitted, the unconfirmed part of them, how many microseconds ago the first that is not on record may have been
--           admitted, how many tokens the POP's own bucket has not refilled since, when the report was made, in milliseconds of the
--           POP's clock, and how many counts of this POP there are from here on
--
-- Returns   doubles: now_us; ahead; and for each POP, or once if there are no counts, deficit_us, deficit_ns, spread, charged; then the
--           members as they are kept; or, if the clock shows more than it can, the error "LATE <now_us>", and nothing is written
--
-- The numbers in capitals are set in front of this text from the constants of weir_budget. Time counts here: Redis does nothing else
-- meanwhile. So there are few functions, and no table that is not needed.

local SPANS = '<' .. string.rep('dd', SPILLS_MAX)
local read, write, find, sub, floor = struct.unpack, struct.pack, string.find, string.sub, math.floor
local key, region, LAST, TOLD_BYTES, COUNT_BYTES = KEYS[1], ARGV[1], #ARGV - 1, 64, 48
local said = ARGV[LAST + 1]
local latest, jump_seen, jumped, milli, askers, token_us, token_ns, fill_us = read('<dddddddd', said)

-- Drops the shortest spills, but never the latest; returns how long the list is then.
local function bound_spills(spills, spills_len)
  while spills_len > 2 * SPILLS_MAX do
    local shortest = 1
    for s = 3, spills_len - 2, 2 do
      if spills[s + 1] - spills[s] < spills[shortest + 1] - spills[shortest] then
        shortest = s
      end
    end
    table.remove(spills, shortest)
    table.remove(spills, shortest)
    spills_len = spills_len - 2
  end
  return spills_len
end

local time = redis.call('TIME')
local store_now = time[1] * 1000000 + time[2]
-- The clock has jumped, or the caller has given up since. It knows which, and asks again if it still wants to.
if store_now > latest then
  return {err = string.format('LATE %.0f', store_now)}
end

local deficit_us, deficit_ns, at, ahead, doubt = 0, 0, 0, 0, 0
local spread, spread_until, spread_before, was_us, was_ns = 0, 0, 0, token_us, token_ns
local spills_len, sources_len, members_at, sources_at = 0, 0, 1, 1
local state = redis.pcall('GET', key)
if state and #state >= HEAD_BYTES then
  local at_us, ahead_us = read('<dd', state, 19)
  if store_now - at_us + ahead_us > DELAY_US_MAX then
    -- A rollback leaves strings behind: the hash that was charged since is the budget.
    local row = redis.pcall('HMGET', 'weir:' .. sub(key, PREFIX_BYTES + 1), 'at_us', 'clock')
    local hash_at = (tonumber(row[1] or 0) or 0) - (tonumber(string.match(row[2] or '', '^(%-?%d+) ') or 0))
    if hash_at > at_us - ahead_us + DELAY_US_MAX then
      state = false
    end
  end
end
if not state then
  state = ''
  -- A weir-sync of the version before may have charged it: what that wrote is taken over, once.
  local before = 'weir:' .. sub(key, PREFIX_BYTES + 1)
  local all = redis.pcall('HGETALL', before)
  if all[1] then
    redis.call('DEL', before)
    local field, members, sources, spans, spans_len = {}, {}, {}, '', 0
    for f = 1, #all, 2 do
      field[all[f]] = all[f + 1]
      local admitted, seen, made, delay = string.match(all[f + 1], '^(%d+) (%d+) (%d+) (%d+)$')
      local epoch, pop = string.match(all[f], '^source:(%x+):(.*)$')
      if delay and epoch and #epoch == 16 and not find(pop, '[\n\\]') then
        sources[#sources + 1] = '\n' .. epoch .. pop .. '\n' .. write('<dddd', admitted, seen, made, delay)
      end
    end
    for from, to in string.gmatch(field.spill or '', '(%d+) (%d+);') do
      spans, spans_len = spans .. write('<dd', from, to), spans_len + 1
    end
    for name, milli, askers, spoke in string.gmatch(field.members or '', '([^=;]+)=(%d+),(%d+),(%d+);') do
      members[#members + 1] = string.char(#name) .. name .. write('<ddd', milli, askers, spoke)
    end
    local bursts, until_us, before = string.match(field.spread or '', '^(%d+) (%d+) (%d+)$')
    local token, rest = string.match(field.token or '', '^(%d+) (%d+)$')
    local ahead_us, doubt_us = string.match(field.clock or '', '^(%-?%d+) (%d+)$')
    members, sources_len = table.concat(members), #sources
    sources = table.concat(sources)
    state = write('<c2ddddddddddI1I3I3I4', 'W1', tonumber(field.deficit_us) or 0, tonumber(field.deficit_ns) or 0,
      tonumber(field.at_us) or 0, ahead_us or 0, doubt_us or 0, bursts or 0, until_us or 0, before or 0, token or token_us,
      rest or token_ns, spans_len, sources_len, #members, HEAD_BYTES + #spans + #members + #sources) .. spans .. members .. sources
  end
elseif state.err then
  -- Something else lies under our name; a budget that nobody can charge would be worse than a new one.
  redis.call('DEL', key)
  state = ''
end
local spills
if #state >= HEAD_BYTES then
  local is, us, ns, at_us, ahead_us, doubt_us, bursts, until_us, before, token, rest, spans, sources, members, all =
    read('<c2ddddddddddI1I3I3I4', state)
  if is == 'W1' and all == #state then
    deficit_us, deficit_ns, at, ahead, doubt = us, ns, at_us, ahead_us, doubt_us
    spread, spread_until, spread_before, was_us, was_ns = bursts, until_us, before, token, rest
    spills_len, sources_len, members_at = 2 * spans, sources, HEAD_BYTES + 1 + 16 * spans
    sources_at = members_at + members
    if spans > 0 then
      spills = {read(sub(SPANS, 1, 1 + 2 * spans), state, HEAD_BYTES + 1)}
    end
  else
    state = ''
  end
else
  state = ''
end

-- How much of the time since the last charge never was: the clock jumped ahead, as the caller has seen.
if jumped > 0 then
  local since = at > ahead and at - ahead or 0
  if since <= jump_seen and store_now > since then
    ahead = ahead - (store_now - since < jumped and store_now - since or jumped)
  end
end

-- Counts by their text: admitted, seen, made, delay, and where that stands in `state`, if it does; and those that are new or heard of again.
local records, heard, heard_len = {}, {}, 0
local sure = fill_us > STEP_US and fill_us or STEP_US
local answer
local now = store_now
local i = 2
repeat
  -- The counts of one POP: what is on record, and how much more time has passed than the POP's clock says.
  local told = store_now + ahead
  local count, late = 0, nil
  local admitted, unconfirmed, spoken, lacking, made
  if i <= LAST then
    admitted, unconfirmed, spoken, lacking, made, count = read('<dddddd', said, TOLD_BYTES + COUNT_BYTES * (i - 2) + 1)
    for c = i, i + count - 1 do
      local id = ARGV[c]
      local record = records[id]
      if not record and sources_len > 0 then
        local from, to = find(state, id, sources_at, true)
        if from then
          record = {read('<dddd', state, to + 1)}
          record[5] = to + 1
          records[id] = record
        end
      end
      if record then
        if c > i then
          made = read('<d', said, TOLD_BYTES + COUNT_BYTES * (c - 2) + 33)
        end
        local this = record[4]
        if told > record[2] then
          this = this + told - record[2]
        end
        if made > record[3] then
          this = this - (made - record[3]) * 1000
        end
        if not late or this < late then
          late = this
        end
      end
    end
  end

  -- The budget's own time: the store's, without its steps. A step back is no time, nor is a step forward that the caller's
  -- or the POP's clock exposes. Where a budget is only looked at, more time than plausible is put off.
  local elapsed = told > at and told - at or 0
  now = told
  if told < at then
    now = at
  elseif late then
    if late < 0 then
      now = told + (doubt < -late and doubt or -late)
    elseif elapsed > sure and late > sure then
      now = told - (elapsed < late and elapsed or late)
    end
  elseif count > 0 then
    now = told + doubt
  elseif elapsed > fill_us and elapsed > LOOK_US and deficit_us > fill_us then
    now = at + fill_us
  end
  if count > 0 then
    doubt = 0
  elseif told > now then
    doubt = doubt + told - now
  end
  ahead = ahead + now - told
  elapsed = now - at

  -- Refill, and note what a full budget loses: at most a burst, where no POP confirms that so much time has passed.
  if deficit_us < elapsed then
    local from = at + deficit_us
    if count == 0 and elapsed > sure and from < now - fill_us then
      from = now - fill_us
    end
    spills = spills or {}
    if spills_len > 0 and spills[spills_len] >= from then
      if spills[spills_len] < now then
        spills[spills_len] = now
      end
    else
      spills[spills_len + 1], spills[spills_len + 2] = from, now
      spills_len = spills_len + 2
    end
    if now - spills[2] > SPILL_KEPT_US then
      local kept, kept_len = {}, 0
      for s = 1, spills_len, 2 do
        if now - spills[s + 1] <= SPILL_KEPT_US then
          kept[kept_len + 1], kept[kept_len + 2] = spills[s], spills[s + 1]
          kept_len = kept_len + 2
        end
      end
      spills, spills_len = kept, kept_len
    end
    if spills_len > 2 * SPILLS_MAX then
      spills_len = bound_spills(spills, spills_len)
    end
    deficit_us, deficit_ns = 0, 0
  else
    deficit_us = deficit_us - elapsed
  end
  at = now

  -- Go by this quota from now on: as many tokens are missing as before, however long they take now.
  if (was_us ~= token_us or was_ns ~= token_ns) and (deficit_us > 0 or deficit_ns > 0) then
    local missing = deficit_us / (was_us + was_ns / 1000) * (token_us + token_ns / 1000)
    deficit_us, deficit_ns = math.min(floor(missing), DEFICIT_US_MAX), 0
  end
  was_us, was_ns = token_us, token_ns

  -- Charge what the records do not hold yet.
  local charged, reach, missing = 0, 0, 0
  for c = i, i + count - 1 do
    local id = ARGV[c]
    if count > 1 then
      admitted, unconfirmed, spoken, lacking, made = read('<ddddd', said, TOLD_BYTES + COUNT_BYTES * (c - 2) + 1)
    end
    local record = records[id]
    local new, since = unconfirmed, now
    if record then
      -- The POP's clock says how much time lies between two reports. If they arrive farther apart, the later one was
      -- delayed; or the store's clock has stepped, where no report is held up for so long.
      local gap, passed = 0, 0
      if made > record[3] then
        gap, record[3] = made - record[3], made
      end
      if now > record[2] then
        passed = now - record[2]
      end
      if passed - gap * 1000 > DELAY_US_MAX then
        passed = gap * 1000
      end
      local delay = record[4] + passed - gap * PACE_US
      delay = delay < 0 and 0 or delay > DELAY_US_MAX and DELAY_US_MAX or delay
      new, since = 0, gap * 1000
      if admitted > record[1] then
        new, record[1] = admitted - record[1], admitted
      end
      record[2], record[4] = now, delay
    else
      record = {admitted, now, made, 0}
      records[id] = record
      sources_len = sources_len + 1
    end
    if not record.is_heard then
      record.is_heard = true
      heard_len = heard_len + 1
      heard[heard_len] = id
    end
    if new > CHARGE_TOKENS_MAX then
      new = CHARGE_TOKENS_MAX
    end
    if new > 0 then
      -- New tokens were admitted since the record was made; unless a POP cannot admit so many in that time: then the record
      -- was late. If the POP has heard that some of them were charged, the store has forgotten that: the report's span
      -- begins after it.
      local span = new > unconfirmed and spoken + FORGOTTEN_US_MAX or spoken
      local least = new * token_us + floor(new * token_ns / 1000) - fill_us
      if since < least then
        since = least
      end
      if span > since then
        span = since
      end
      local far = span + record[4] + (span < LENIENCE_US and span or LENIENCE_US)
      if far > reach then
        reach = far
      end
      charged = charged + new
    end
    missing = missing + lacking
  end
  if charged > CHARGE_TOKENS_MAX then
    charged = CHARGE_TOKENS_MAX
  end
  local price_ns = charged * token_ns
  local cost_us = charged * token_us + floor(price_ns / 1000)

  -- A report speaks of the past: what spilled within its span pays for it first, except for tokens that the POP's own
  -- bucket still lacks.
  if spills_len > 0 and charged > missing then
    local refilled = charged - missing
    local left_us = refilled * token_us + floor(refilled * token_ns / 1000)
    local since = now > reach and now - reach or 0
    local left, left_len = {}, 0
    cost_us = cost_us - left_us
    for s = 1, spills_len, 2 do
      local from, to = spills[s], spills[s + 1]
      local begin = from
      if since > begin then
        begin = since > to and to or since
      end
      local till = to - begin < left_us and to or begin + left_us
      left_us = left_us - (till - begin)
      if till == begin then
        left[left_len + 1], left[left_len + 2] = from, to
        left_len = left_len + 2
      else
        if begin > from then
          left[left_len + 1], left[left_len + 2] = from, begin
          left_len = left_len + 2
        end
        if to > till then
          left[left_len + 1], left[left_len + 2] = till, to
          left_len = left_len + 2
        end
      end
    end
    cost_us = cost_us + left_us
    spills, spills_len = left, left_len
    if spills_len > 2 * SPILLS_MAX then
      spills_len = bound_spills(spills, spills_len)
    end
  end
  deficit_ns = deficit_ns + price_ns % 1000
  if deficit_ns >= 1000 then
    cost_us, deficit_ns = cost_us + 1, deficit_ns - 1000
  end
  deficit_us = deficit_us + (cost_us < DEFICIT_US_MAX and cost_us or DEFICIT_US_MAX)
  if deficit_us >= DEFICIT_US_MAX then
    deficit_us, deficit_ns = DEFICIT_US_MAX, 0
  end

  -- Remember how many bursts deep it went. fmod is exact where a quotient is not.
  if now >= spread_until then
    spread = 0
  end
  local beyond = deficit_us - SPREAD_MOMENT_US
  local debt = deficit_us > fill_us and deficit_us - fill_us or 0
  if debt > SPREAD_DEBT_US_MAX then
    debt = SPREAD_DEBT_US_MAX
  end
  local longest = now + debt + SPREAD_KEPT_US
  if beyond > fill_us then
    local rest = math.fmod(beyond, fill_us)
    local depth = math.min((beyond - rest) / fill_us + (rest > 0 and 1 or 0), SPREAD_MAX)
    if spread_before == 0 then
      spread_before = spread > 1 and spread or 1
    end
    local times = depth < AGAIN_MIN and 1 or spread_before
    spread = math.max(spread, math.min(depth * times, SPREAD_MAX))
    spread_until = longest
  else
    spread_before = 0
    if spread_until > longest then
      spread_until = longest
    end
  end

  -- Forget the sources heard of longest ago.
  i = i + count
  if sources_len > SOURCES_MAX then
    local all, ids, place = {}, {}, sources_at
    while place <= #state do
      local _, last = find(state, '\n', place + 1, true)
      local id = sub(state, place, last)
      all[id] = records[id] or {read('<dddd', state, last + 1)}
      place = last + 33
    end
    for c = 1, heard_len do
      all[heard[c]] = records[heard[c]]
    end
    for id in pairs(all) do
      ids[#ids + 1] = id
    end
    table.sort(ids, function(a, b)
      if all[a][2] ~= all[b][2] then
        return all[a][2] > all[b][2]
      end
      return a > b
    end)
    local kept = {sub(state, 1, sources_at - 1)}
    for c = 1, SOURCES_KEPT do
      kept[2 * c], kept[2 * c + 1] = ids[c], write('<dddd', unpack(all[ids[c]], 1, 4))
    end
    state, sources_len, records, heard, heard_len = table.concat(kept), SOURCES_KEPT, {}, {}, 0
  end
  local this = write('<dddd', deficit_us, deficit_ns, spread, charged)
  answer = answer and answer .. this or this
until i > LAST

-- The sources, with what was heard of them.
local sources
if heard_len == 1 then
  local id = heard[1]
  local record = records[id]
  local says, place = write('<dddd', record[1], record[2], record[3], record[4]), record[5]
  if place then
    sources = sub(state, sources_at, place - 1) .. says .. sub(state, place + 32)
  else
    sources = sub(state, sources_at) .. id .. says
  end
else
  local places, new, by_place = {}, {}, {}
  for c = 1, heard_len do
    local record = records[heard[c]]
    local says = write('<dddd', record[1], record[2], record[3], record[4])
    if record[5] then
      places[#places + 1], by_place[record[5]] = record[5], says
    else
      new[#new + 1] = heard[c] .. says
    end
  end
  table.sort(places)
  local parts, from = {}, sources_at
  for c, place in ipairs(places) do
    parts[2 * c - 1], parts[2 * c], from = sub(state, from, place - 1), by_place[place], place + 32
  end
  parts[#parts + 1] = sub(state, from)
  sources = table.concat(parts) .. table.concat(new)
end

-- Note the member's demand, forget members that fell silent.
local own = string.char(#region) .. region
local members = own .. write('<ddd', milli, askers, now)
if sources_at - members_at ~= #members or sub(state, members_at, members_at + #own - 1) ~= own then
  local kept, place = {members}, members_at
  while place < sources_at do
    local name, _, _, spoke, next_place = read('<Bc0ddd', state, place)
    if name ~= region and now - spoke <= MEMBER_IDLE_US then
      kept[#kept + 1] = sub(state, place, next_place - 1)
    end
    place = next_place
  end
  if #kept > MEMBERS_MAX then
    local name_of, at_of = {}, {}
    for _, member in ipairs(kept) do
      local name, _, _, spoke = read('<Bc0ddd', member)
      name_of[member], at_of[member] = name, spoke
    end
    table.sort(kept, function(a, b)
      if at_of[a] ~= at_of[b] then
        return at_of[a] > at_of[b]
      end
      return name_of[a] > name_of[b]
    end)
  end
  members = table.concat(kept, '', 1, #kept < MEMBERS_MAX and #kept or MEMBERS_MAX)
end

local spans = spills_len == 0 and '' or write(sub(SPANS, 1, 1 + spills_len), unpack(spills, 1, spills_len))
state = write('<c2ddddddddddI1I3I3I4', 'W1', deficit_us, deficit_ns, now, ahead, doubt, spread, spread_until, spread_before,
  token_us, token_ns, spills_len / 2, sources_len, #members, HEAD_BYTES + #spans + #members + #sources)
  .. spans .. members .. sources

local keep_us = deficit_us + (deficit_ns > 0 and 1 or 0) + GRACE_US
if spread > 0 and spread_until - now > keep_us then
  keep_us = spread_until - now
end
-- The clock may step forward without forgetting a debt or a spread.
if spread > 0 or deficit_us > fill_us or deficit_us == fill_us and deficit_ns > 0 then
  keep_us = keep_us + STEP_KEPT_US
end
if keep_us > KEPT_US_MAX then
  keep_us = KEPT_US_MAX
end
redis.call('SET', key, state, 'PX', math.ceil(keep_us / 1000))
return write('<dd', store_now, ahead) .. answer .. members
