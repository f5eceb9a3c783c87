-- Stores a rule set as a new version; begins and ends a canary.
--
-- KEYS[1]   the rule sets, a hash: current (a version), first (the first version), file (the last document that
--           came from a file), document:<version> (JSON) and note:<version> (`<seconds since 1970> <its origin>`);
--           while a canary runs, canary (its number), canary:document and canary:note (`<milliseconds since 1970>
--           <text>`); canaries (the number of the last one), overrides (the number of the overrides)
-- ARGV[1]   put, which fails while a canary runs; put over, which ends a canary; begin, promote or withdraw a canary
-- ARGV[2]   the document, to put or to begin
-- ARGV[3]   the version that must be current, 0 if there must be none, or empty
-- ARGV[4]   the origin of the version; to begin, the canary's text
-- ARGV[5]   1 if it comes from a file
-- ARGV[6]   to promote or withdraw, the number of the canary that must run
--
-- Returns   {1, the new version};
--           {0, the current version} if a file has nothing new;
--           {-1, the current version} if it differs from ARGV[3];
--           {2, the number of the canary that begins};
--           {3, the number of the canary that was withdrawn};
--           {-2, the number of the canary that runs} if it is another one or none must run;
--           {-3, 0} if none runs

local key, what, document, expected, note, from_file, id =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]
local known = redis.call('HMGET', key, 'current', 'canary', 'canaries', 'overrides')
local current, canary = tonumber(known[1] or '0'), tonumber(known[2] or '0')
local canaries, overrides = tonumber(known[3] or '0'), tonumber(known[4] or '0')

local function field(name, version)
  return name .. ':' .. whole(version)
end

local function put(document)
  local version = current > 0 and current + 1 or now_ms
  if current == 0 then
    redis.call('HSET', key, 'first', whole(version))
  end
  redis.call('HSET', key, 'current', whole(version), field('document', version), document, field('note', version),
    time[1] .. ' ' .. note)
  local dropped = version - VERSIONS_KEPT
  redis.call('HDEL', key, field('document', dropped), field('note', dropped))
  return {1, version}
end

-- Ends the canary. Increases the overrides' number, so that later revisions do not reuse the canary's numbers.
local function end_canary(by)
  redis.call('HDEL', key, 'canary', 'canary:document', 'canary:note')
  if by > 0 then
    redis.call('HSET', key, 'overrides', whole(overrides > 0 and overrides + by or now_ms))
  end
end

if what == 'promote' or what == 'withdraw' then
  if canary == 0 then
    return {-3, 0}
  end
  if tonumber(id) ~= canary then
    return {-2, canary}
  end
  if what == 'withdraw' then
    end_canary(2)
    return {3, canary}
  end
  local promoted = redis.call('HGET', key, 'canary:document')
  end_canary(0)
  return put(promoted)
end
if expected ~= '' and tonumber(expected) ~= current then
  return {-1, current}
end
if what == 'begin' then
  if current == 0 then
    return {-1, 0}
  end
  if canary > 0 then
    return {-2, canary}
  end
  local begun = math.max(now_ms, canaries + 1)
  redis.call('HSET', key, 'canary', whole(begun), 'canaries', whole(begun), 'canary:document', document, 'canary:note',
    whole(now_ms) .. ' ' .. note)
  return {2, begun}
end
if from_file then
  local last = redis.call('HMGET', key, 'file', field('document', current))
  if current > 0 and (last[1] == document or last[2] == document) then
    redis.call('HSET', key, 'file', document)
    return {0, current}
  end
end
if canary > 0 then
  if what == 'put' then
    return {-2, canary}
  end
  end_canary(1)
end
if from_file then
  redis.call('HSET', key, 'file', document)
end
return put(document)
