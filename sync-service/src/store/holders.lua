-- What draw.lua and tally.lua share, set in front of both: a budget's hash, and in it the epochs that tokens are
-- leased to.
--
-- KEYS[1]   the budget, a hash: numbers, and per epoch that tokens are leased to
--           "holder:<epoch>:<pop>" = "<charged> <spent> <until_us>"
-- ARGV[1]   the POP that claims

local key, pop = KEYS[1], ARGV[1]
local EACH, REFUSED = 3, -1

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- Known epochs by their fields, how many there are in all, and those to be written.
local holders, holders_len, updates = {}, 0, {}

-- tostring() keeps 14 digits only.
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

-- Reads the numbers of these names and the epochs of the claims that begin at an argument; none where a number is
-- missing. A sum over all epochs is among the numbers, and is true until the next lease may end. So most draws cost
-- the same however many epochs there are.
local function read_budget(names, first)
  local fields = {unpack(names)}
  for i = first, #ARGV, EACH do
    fields[#fields + 1] = field_of(ARGV[i])
  end
  local known = redis.pcall('HMGET', key, unpack(fields))
  local numbers = {}
  for i = 1, #names do
    numbers[i] = tonumber(known[i] or nil)
    if not numbers[i] then
      return nil
    end
  end
  holders_len = redis.call('HLEN', key) - #names
  for i = #names + 1, #fields do
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

-- The clock has stepped back by so much: leases last as long as they had left, and no longer.
local function step_back(by_us)
  for field, holder in pairs(holders) do
    holder[3] = math.max(0, holder[3] - by_us)
    updates[field] = holder
  end
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

-- The epoch of a claim, and how many of its tokens it says for the first time are spent; none where it is refused.
local function claimed(field, spent, ahead)
  local holder = holders[field]
  if holder and now - holder[3] >= ENDED_KEPT_US then
    drop(field)
    holder = nil
  end
  if holder then
    if holder[3] <= now or spent > holder[1] then
      return nil
    end
  else
    if spent > 0 or ahead == 0 or not has_room() then
      return nil
    end
    holder = {0, 0, 0}
  end
  local more = math.max(0, spent - holder[2])
  holder[2] = holder[2] + more
  return holder, more
end

-- Ends an epoch; how many tokens it gives back.
local function give_back(field, holder)
  local unspent = holder[1] - holder[2]
  holder[2], holder[3] = holder[1], now
  updates[field] = holder
  return unspent
end

-- How many tokens an epoch lacks of what is claimed for it.
local function needed(holder, spent, ahead)
  return math.max(0, math.min(spent + ahead, COUNT_MAX) - holder[1])
end

-- Gives tokens to an epoch, all of which may be spent until then. Whether it is one that holds any.
local function lease(field, holder, tokens, until_us)
  holder[1] = holder[1] + tokens
  holder[3] = math.max(holder[3], until_us)
  if holder[1] == 0 then
    return false
  end
  if not holders[field] then
    holders_len = holders_len + 1
  end
  holders[field], updates[field] = holder, holder
  return true
end

-- Writes the numbers of these names and the epochs that changed.
local function write(names, numbers)
  local written = {}
  for i, number in ipairs(numbers) do
    written[#written + 1] = names[i]
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
end

