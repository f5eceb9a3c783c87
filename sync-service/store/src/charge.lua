-- Charges budgets: each as by weir_budget::budget::Budget::charge for each POP in turn, all atomically and by Redis's
-- clock. The limits in capitals are constants of weir_budget, defined in lines before this text.
--
-- KEYS      the budgets, strings. Numbers are doubles, which hold whole numbers up to 2^53 exactly; times are in
--           microseconds of the budget's own clock; all is little-endian, without padding:
--             head            "W4"; deficit_us, deficit_ns: the refill until full; at: time of the last charge; ahead:
--                             lead of its clock over the store's; fan_out, until, before: fan-out in bursts, its end,
--                             and the fan-out when the current overshoot began; token_us, token_ns, fill: refill time
--                             of a token and of an empty budget; forgiven: refill missing at an earlier quota only;
--                             kept: expiry of the key. Then, as integers: the number of spans (1 byte) and of sources
--                             (3), the bytes of the replicas (3) and of the string (4)
--             unused refill   from, to: span in which a full budget lost its refill, as far as it is not claimed
--             replicas        length of its name (1 byte), name, milli, askers, at
--             sources         "\n<epoch><pop>\n" (the epoch in 16 hex digits), admitted, seen, made, delay. A name has
--                             no "\n", and the highest byte of a double is no hex digit: so this text is unique
-- ARGV[1]   the replica that charges: a region, or "region/replica"
-- ARGV[2..] "\n<epoch><pop>\n" of each count, budget by budget, POP by POP
-- and last, doubles: the caller's bounds on the store's clock (weir_budget::store_clock): the latest time that it can
--           show, the time at which its latest jump was observed, the length of all its jumps. Then for each budget:
--           the replica's demand (milli, askers), token_us, token_ns, fill, the number of counts. Then six per count,
--           or six zeros if there is none: tokens admitted, the unconfirmed part of them, the age of the oldest
--           admission that is not on record, tokens that the POP's bucket still lacks, the time of the report in
--           milliseconds of the POP's clock, and the number of counts of this POP from here on
--
-- Returns   now_us, a double; and for each budget: ahead, a double; the bytes of the replicas, in 3; for each POP, or
--           once if there are no counts, four doubles: deficit_us, deficit_ns, fan_out, charged; then the replicas as
--           they are stored. Or, if the clock is past its latest possible time, the error "LATE <now_us>", and
--           nothing is written
--
-- Redis does nothing else meanwhile, and its overhead for each call and each byte of a new string takes as long as the
-- arithmetic. So several budgets go in one call, there are few functions, and no table or string that is not needed.

local HEAD = '<c2ddddddddddddI1I3I3I4'
local read, write, find, sub, floor = struct.unpack, struct.pack, string.find, string.sub, math.floor
local own_name, rows, ROW_BYTES = ARGV[1], ARGV[#ARGV], 48
local own, own_bytes = string.char(#own_name) .. own_name, #own_name + 1
local latest, jump_seen, jumped = read('<ddd', rows)

-- Drops the shortest spans, but never the latest; returns the new length of the list.
local function bound_unused(unused, unused_len, most)
  while unused_len > most do
    local shortest = 1
    for s = 3, unused_len - 2, 2 do
      if unused[s + 1] - unused[s] < unused[shortest + 1] - unused[shortest] then
        shortest = s
      end
    end
    table.remove(unused, shortest)
    table.remove(unused, shortest)
    unused_len = unused_len - 2
  end
  return unused_len
end

local time = redis.call('TIME')
local store_now = time[1] * 1000000 + time[2]
-- The caller can tell a jump of the clock from a late call, and repeats the call if it still waits.
if store_now > latest then
  return {err = string.format('LATE %.0f', store_now)}
end

-- Finds a record; created for the first budget with several counts, since few have them and a function costs time.
local record_of
local answers, answers_len = {write('<d', store_now)}, 1
-- Index of the next source among the arguments, and position of its row in `rows`.
local i, row = 2, 25
for k = 1, #KEYS do
  local key = KEYS[k]
  local milli, askers, token_us, token_ns, fill_us, counts, admitted, unconfirmed, span_us, lacking, made, count =
    read('<dddddddddddd', rows, row)
  local first, last = i, i + counts - 1
  row = row + ROW_BYTES

  local deficit_us, deficit_ns, at, ahead = 0, 0, 0, 0
  local fan_out, fan_out_until, fan_out_before, kept_until = 0, 0, 0, 0
  local was_us, was_ns, was_fill, forgiven = token_us, token_ns, fill_us, 0
  local unused_len, sources_len, replicas_at, sources_at = 0, 0, 1, 1
  local state = redis.pcall('GET', key)
  local is, us, ns, at_us, ahead_us, bursts, until_us, before
  local token, rest, fill, pardon, kept, spans, sources, replicas, all
  if state and state.err then
    -- The key has another type; a budget that cannot be charged would be worse than a new one.
    redis.call('DEL', key)
    state = ''
  end
  if state and #state >= HEAD_BYTES then
    is, us, ns, at_us, ahead_us, bursts, until_us, before, token, rest, fill, pardon, kept,
      spans, sources, replicas, all = read(HEAD, state)
  end
  if is == 'W4' and all == #state then
    deficit_us, deficit_ns, at, ahead = us, ns, at_us, ahead_us
    fan_out, fan_out_until, fan_out_before, kept_until = bursts, until_us, before, kept
    was_us, was_ns, was_fill, forgiven = token, rest, fill, pardon
    unused_len, sources_len, replicas_at = 2 * spans, sources, HEAD_BYTES + 1 + 16 * spans
    sources_at = replicas_at + replicas
  else
    state = ''
  end

  -- The budget's own time: the store's without its steps and observed jumps. It never goes back.
  if jumped > 0 then
    local since = at > ahead and at - ahead or 0
    if since <= jump_seen and store_now > since then
      ahead = ahead - (store_now - since < jumped and store_now - since or jumped)
    end
  end
  local now = store_now + ahead > at and store_now + ahead or at
  ahead = now - store_now
  local elapsed = now - at
  at = now

  -- Spans of unused refill, once they are needed.
  local unused
  -- Refill, and record the unused refill of a full budget.
  local until_full = forgiven > 0 and deficit_us + forgiven or deficit_us
  if until_full < elapsed then
    local from = now - elapsed + until_full
    unused = unused_len > 0 and {read('<' .. string.rep('d', unused_len), state, HEAD_BYTES + 1)} or {}
    if unused_len > 0 and unused[unused_len] >= from then
      if unused[unused_len] < now then
        unused[unused_len] = now
      end
    else
      unused[unused_len + 1], unused[unused_len + 2] = from, now
      unused_len = unused_len + 2
    end
    if now - unused[2] > UNUSED_KEPT_US then
      local kept, kept_len = {}, 0
      for s = 1, unused_len, 2 do
        if now - unused[s + 1] <= UNUSED_KEPT_US then
          kept[kept_len + 1], kept[kept_len + 2] = unused[s], unused[s + 1]
          kept_len = kept_len + 2
        end
      end
      unused, unused_len = kept, kept_len
    end
    if unused_len > 2 * UNUSED_SPANS_MAX then
      unused_len = bound_unused(unused, unused_len, 2 * UNUSED_SPANS_MAX)
    end
    deficit_us, deficit_ns, forgiven = 0, 0, 0
  elseif deficit_us < elapsed then
    deficit_us, deficit_ns, forgiven = 0, 0, until_full - elapsed
  else
    deficit_us = deficit_us - elapsed
    forgiven = forgiven < -deficit_us and -deficit_us or forgiven
  end

  -- Adopt this quota, as Budget::go_by.
  local is_other = was_us ~= token_us or was_ns ~= token_ns or was_fill ~= fill_us
  if is_other and (deficit_us > 0 or deficit_ns > 0 or forgiven ~= 0) then
    local old_token, new_token = was_us + was_ns / 1000, token_us + token_ns / 1000
    local missing, part = (deficit_us + forgiven) / old_token * new_token, deficit_us / was_fill * fill_us
    if fill_us / new_token > was_fill / old_token then
      local first = deficit_us < was_fill and deficit_us or was_fill
      part = first / was_fill * fill_us + (deficit_us - first) / old_token * new_token
      part = part < missing and missing or part
    end
    part = math.min(floor(part), DEFICIT_US_MAX)
    deficit_us, deficit_ns, forgiven = part, 0, math.min(floor(missing), DEFICIT_US_MAX) - part
  end

  answers_len = answers_len + 1
  local answer_at = answers_len
  local charged
  -- Record of the current count, and its position in `state`, if it is there. For several counts: updated records by
  -- position, and new records.
  local record_admitted, record_seen, record_made, record_delay, place
  local places, fresh, added = nil, nil, ''
  local is_only = counts == 1
  if counts > 1 and not record_of then
    function record_of(id, state, from, fresh, added)
      local _, id_ends = find(state, id, from, true)
      if id_ends then
        local newer = fresh and fresh[id_ends + 1]
        return id_ends + 1, read('<dddd', newer or state, newer and 1 or id_ends + 1)
      end
      _, id_ends = find(added, id, 1, true)
      if id_ends then
        return nil, read('<dddd', added, id_ends + 1)
      end
    end
  end
  repeat
    if counts == 0 then
      count = 0
    elseif i > first then
      admitted, unconfirmed, span_us, lacking, made, count = read('<dddddd', rows, row)
    end
    -- Charge the tokens that the records do not contain yet.
    local reach, missing, between = 0, 0, 0
    charged = 0
    for c = i, i + count - 1 do
      local id = ARGV[c]
      if c > i then
        admitted, unconfirmed, span_us, lacking, made = read('<ddddd', rows, row + ROW_BYTES * (c - i))
      end
      if is_only then
        local _, id_ends = find(state, id, sources_at, true)
        if id_ends then
          place = id_ends + 1
          record_admitted, record_seen, record_made, record_delay = read('<dddd', state, place)
        end
      else
        place, record_admitted, record_seen, record_made, record_delay = record_of(id, state, sources_at, fresh, added)
      end
      local is_new, new, since, passed = not record_seen, unconfirmed, now, now
      if is_new then
        record_admitted, record_seen, record_made, record_delay = admitted, now, made, 0
        sources_len = sources_len + 1
      else
        -- The time between two reports is measured by the POP's clock. If they arrive farther apart, the later one was
        -- delayed; or the store's clock has stepped, if that is longer than any report is delayed.
        local gap = 0
        if made > record_made then
          gap, record_made = made - record_made, made
        end
        passed = now > record_seen and now - record_seen or 0
        if passed - gap * 1000 > DELAY_US_MAX then
          passed = gap * 1000
        end
        local delay = record_delay + passed - gap * PACE_US
        record_delay = delay < 0 and 0 or delay > DELAY_US_MAX and DELAY_US_MAX or delay
        new, since = 0, gap * 1000
        if admitted > record_admitted then
          new, record_admitted = admitted - record_admitted, admitted
        end
        record_seen = now
      end
      if not is_only then
        local record = write('<dddd', record_admitted, record_seen, record_made, record_delay)
        if place then
          places, fresh = places or {}, fresh or {}
          if not fresh[place] then
            places[#places + 1] = place
          end
          fresh[place] = record
        elseif is_new then
          added = added .. id .. record
        else
          local _, id_ends = find(added, id, 1, true)
          added = sub(added, 1, id_ends) .. record .. sub(added, id_ends + 33)
        end
      end
      if new > CHARGE_TOKENS_MAX then
        new = CHARGE_TOKENS_MAX
      end
      -- What the bucket lacked at the last report and had refilled by this one, if they arrived in a bunch.
      if passed < since and unconfirmed > new then
        local earlier = (unconfirmed - new) * token_us + floor((unconfirmed - new) * token_ns / 1000)
        earlier = (earlier < since and earlier or since) - passed
        between = earlier > 0 and between + earlier or between
      end
      if new > 0 then
        -- The span of the new tokens, as in Budget::charge.
        local span = new > unconfirmed and span_us + FORGOTTEN_US_MAX or span_us
        local least = new * token_us + floor(new * token_ns / 1000) - fill_us
        if since < least then
          since = least
        end
        if span > since then
          span = since
        end
        local far = span + record_delay + (span < LENIENCE_US and span or LENIENCE_US)
        if far > reach then
          reach = far
        end
        charged = charged + new
      end
      missing = missing + lacking
    end
    if charged > 0 then
      if charged > CHARGE_TOKENS_MAX then
        charged = CHARGE_TOKENS_MAX
      end
      local price_ns = charged * token_ns
      local cost_us = charged * token_us + floor(price_ns / 1000)

      -- A report covers the past: the unused refill within its span pays for it first, except for tokens that
      -- the POP's own bucket still lacks. What other POPs owe may hide a part of these.
      local refilled = charged > missing and charged - missing or 0
      local left_us = refilled * token_us + floor(refilled * token_ns / 1000) + between
      local most_us = deficit_us + cost_us - missing * token_us - floor(missing * token_ns / 1000)
      most_us = most_us < cost_us and most_us or cost_us
      left_us = left_us < most_us and left_us or most_us
      if unused_len > 0 and left_us > 0 then
        unused = unused or {read('<' .. string.rep('d', unused_len), state, HEAD_BYTES + 1)}
        local since = now > reach and now - reach or 0
        local left, left_len = {}, 0
        cost_us = cost_us - left_us
        for s = 1, unused_len, 2 do
          local from, to = unused[s], unused[s + 1]
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
        unused, unused_len = left, left_len
        if unused_len > 2 * UNUSED_SPANS_MAX then
          unused_len = bound_unused(unused, unused_len, 2 * UNUSED_SPANS_MAX)
        end
      end
      deficit_ns = deficit_ns + price_ns % 1000
      if deficit_ns >= 1000 then
        cost_us, deficit_ns = cost_us + 1, deficit_ns - 1000
      end
      deficit_us = deficit_us + (cost_us < DEFICIT_US_MAX and cost_us or DEFICIT_US_MAX)
    end
    if deficit_us >= DEFICIT_US_MAX then
      deficit_us, deficit_ns = DEFICIT_US_MAX, 0
    end

    -- Update the fan-out. fmod is exact where a quotient is not.
    if now >= fan_out_until then
      fan_out = 0
    end
    local longest
    if fan_out_until > now or deficit_us - FAN_OUT_MOMENT_US > fill_us then
      local debt = deficit_us > fill_us and deficit_us - fill_us or 0
      longest = now + (debt < FAN_OUT_DEBT_US_MAX and debt or FAN_OUT_DEBT_US_MAX) + FAN_OUT_KEPT_US
    end
    if deficit_us - FAN_OUT_MOMENT_US > fill_us then
      local beyond = deficit_us - FAN_OUT_MOMENT_US
      local rest = math.fmod(beyond, fill_us)
      local depth = math.min((beyond - rest) / fill_us + (rest > 0 and 1 or 0), FAN_OUT_MAX)
      if fan_out_before == 0 then
        fan_out_before = fan_out > 1 and fan_out or 1
      end
      local times = depth < AGAIN_MIN and 1 or fan_out_before
      fan_out = math.max(fan_out, math.min(depth * times, FAN_OUT_MAX))
      fan_out_until = longest
    else
      fan_out_before = 0
      if longest and fan_out_until > longest then
        fan_out_until = longest
      end
    end

    i, row = i + count, row + ROW_BYTES * (count > 0 and count or 1)
    -- Forget the sources that reported longest ago.
    if sources_len > SOURCES_MAX then
      fresh = fresh or {}
      local seen, records, ids, from = {}, {}, {}, sources_at
      local all_sources = state .. added
      if is_only then
        all_sources = state .. ARGV[first] .. write('<dddd', record_admitted, record_seen, record_made, record_delay)
      end
      while from <= #all_sources do
        local _, id_ends = find(all_sources, '\n', from + 1, true)
        local id = sub(all_sources, from, id_ends)
        records[id] = fresh[id_ends + 1] or sub(all_sources, id_ends + 1, id_ends + 32)
        local _, seen_at = read('<dd', records[id])
        seen[id], ids[#ids + 1], from = seen_at, id, id_ends + 33
      end
      table.sort(ids, function(a, b)
        if seen[a] ~= seen[b] then
          return seen[a] > seen[b]
        end
        return a > b
      end)
      local parts = {sub(state, 1, sources_at - 1)}
      for c = 1, SOURCES_KEPT do
        parts[2 * c], parts[2 * c + 1] = ids[c], records[ids[c]]
      end
      state, sources_len, places, fresh, added, is_only = table.concat(parts), SOURCES_KEPT, nil, nil, '', false
    end
    if counts > 1 then
      answers_len = answers_len + 1
      answers[answers_len] = write('<dddd', deficit_us, deficit_ns, fan_out, charged)
    end
  until i > last

  -- Record the replica's demand, and forget silent ones.
  local replicas = write('<c0ddd', own, milli, askers, now)
  if sources_at - replicas_at ~= #replicas or sub(state, replicas_at, replicas_at + own_bytes - 1) ~= own then
    local others, from = {replicas}, replicas_at
    while from < sources_at do
      local name, _, _, seen_at, next_replica = read('<Bc0ddd', state, from)
      if name ~= own_name and now - seen_at <= REPLICA_IDLE_US then
        others[#others + 1] = sub(state, from, next_replica - 1)
      end
      from = next_replica
    end
    if #others > REPLICAS_MAX then
      local name_of, at_of = {}, {}
      for _, replica in ipairs(others) do
        local name, _, _, seen_at = read('<Bc0ddd', replica)
        name_of[replica], at_of[replica] = name, seen_at
      end
      table.sort(others, function(a, b)
        if at_of[a] ~= at_of[b] then
          return at_of[a] > at_of[b]
        end
        return name_of[a] > name_of[b]
      end)
    end
    replicas = table.concat(others, '', 1, #others < REPLICAS_MAX and #others or REPLICAS_MAX)
  end
  if counts > 1 then
    answers[answer_at] = write('<dI3', ahead, #replicas)
    answers_len = answers_len + 1
    answers[answers_len] = replicas
  else
    answers[answer_at] = write('<dI3ddddc0', ahead, #replicas, deficit_us, deficit_ns, fan_out, charged, replicas)
  end

  local keep_us = deficit_us + (deficit_ns > 0 and 1 or 0) + (forgiven > 0 and forgiven or 0) + GRACE_US
  if fan_out > 0 and fan_out_until - now > keep_us then
    keep_us = fan_out_until - now
  end
  -- The clock may step forward without losing a debt or a fan-out.
  if fan_out > 0 or deficit_us > fill_us or deficit_us == fill_us and deficit_ns > 0 then
    keep_us = keep_us + STEP_KEPT_US
  end
  if keep_us > KEPT_US_MAX then
    keep_us = KEPT_US_MAX
  end
  -- Setting the expiry takes an eighth of the time of a charge, so it is set only now and then.
  local longer_us = store_now + keep_us - kept_until
  local is_kept = longer_us >= 0 and longer_us <= KEPT_SLACK_US
  if not is_kept then
    kept_until = store_now + keep_us
  end

  local spans = ''
  if unused_len > 0 then
    spans = unused and write('<' .. string.rep('d', unused_len), unpack(unused, 1, unused_len))
      or sub(state, HEAD_BYTES + 1, replicas_at - 1)
  end
  local bytes = HEAD_BYTES + #spans + #replicas
  if is_only then
    local before, after
    if place then
      before, after = sub(state, sources_at, place - 1), sub(state, place + 32)
    else
      before, after = sub(state, sources_at) .. ARGV[first], ''
    end
    state = write('<c2ddddddddddddI1I3I3I4c0c0c0ddddc0', 'W4', deficit_us, deficit_ns, now, ahead, fan_out, fan_out_until,
      fan_out_before, token_us, token_ns, fill_us, forgiven, kept_until, unused_len / 2, sources_len, #replicas,
      bytes + #before + 32 + #after, spans,
      replicas, before, record_admitted, record_seen, record_made, record_delay, after)
  else
    local parts, from = {}, sources_at
    if places then
      table.sort(places)
      for c = 1, #places do
        parts[2 * c - 1], parts[2 * c], from = sub(state, from, places[c] - 1), fresh[places[c]], places[c] + 32
      end
    end
    local sources = table.concat(parts) .. sub(state, from) .. added
    state = write('<c2ddddddddddddI1I3I3I4c0c0c0', 'W4', deficit_us, deficit_ns, now, ahead, fan_out, fan_out_until,
      fan_out_before, token_us, token_ns, fill_us, forgiven, kept_until, unused_len / 2, sources_len, #replicas,
      bytes + #sources, spans, replicas, sources)
  end
  if is_kept then
    redis.call('SET', key, state, 'KEEPTTL')
  else
    redis.call('SET', key, state, 'PX', math.ceil(keep_us / 1000))
  end
end
return table.concat(answers)
