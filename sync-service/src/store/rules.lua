-- Puts a rule set as a new version.
--
-- KEYS[1]   the rule sets, a hash: current (a version), file (the document that a file has put last),
--           document:<version> (JSON) and note:<version> (`<seconds since 1970> <what made it>`)
-- ARGV[1]   the document
-- ARGV[2]   the version that must be current, 0 if there must be none, or empty
-- ARGV[3]   what makes the version
-- ARGV[4]   1 if it comes from a file
--
-- Returns   1, the new version; 0, the current version where a file says nothing new; or -1, the current
--           version where it is another than ARGV[2]
--
-- The maxima in capitals are set in front of this text.

local key, document, expected, note, from_file = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local current = tonumber(redis.call('HGET', key, 'current') or '0')

local function field(name, version)
  return name .. ':' .. string.format('%.0f', version)
end

if expected ~= '' and tonumber(expected) ~= current then
  return {-1, current}
end
if from_file then
  local known = redis.call('HMGET', key, 'file', field('document', current))
  redis.call('HSET', key, 'file', document)
  if current > 0 and (known[1] == document or known[2] == document) then
    return {0, current}
  end
end
local time = redis.call('TIME')
local now = time[1]
local version = current > 0 and current + 1 or tonumber(now) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', key, 'current', string.format('%.0f', version), field('document', version), document,
  field('note', version), now .. ' ' .. note)
local dropped = version - VERSIONS_KEPT
redis.call('HDEL', key, field('document', dropped), field('note', dropped))
return {1, version}
