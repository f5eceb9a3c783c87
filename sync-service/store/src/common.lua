-- Common beginning of all scripts except those of budgets. The lines before this text define the limits in capitals.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- A number as text: tostring() keeps only 14 digits.
local function whole(number)
  return string.format('%.0f', number)
end

-- Deletes keys of another type than `expected`, which another program left under these names.
local function replace_others(expected, names)
  for _, name in ipairs(names) do
    local kind = redis.call('TYPE', name).ok
    if kind ~= expected and kind ~= 'none' then
      redis.call('DEL', name)
    end
  end
end

