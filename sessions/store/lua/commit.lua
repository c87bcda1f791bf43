#!lua
-- One guarded commit: a list of writes that all happen, or none.
-- KEYS: 1 session hash, then every key that is written
-- ARGV: 1 expected version ('' for a session that must not exist yet), 2 name of this commit,
--       3 step field and 4 token of the claim that must still hold ('' for none),
--       then for each write: count, command, index into KEYS, arguments (count of them)
-- A commit whose answer was lost is sent again, and finds that the session has moved on. The names of the
-- last few commits tell that it did so by this very commit.
-- returns 1, or {now_ms, fields} when the session has moved on, so that nobody has to ask for them
local NAMES = 8
local function moved_on()
  local t = redis.call('TIME')
  return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('HGETALL', KEYS[1])}
end
local now = redis.call('HMGET', KEYS[1], 'version', 'commits', ARGV[3])
local name, names = ARGV[2] .. ' ', now[2] or ''
if (now[1] or '') ~= ARGV[1] then
  return string.find(names, name, 1, true) and 1 or moved_on()
end
if ARGV[3] ~= '' then
  if not now[3] or string.match(now[3], '^%S+ %S+ %S+ (%S+)') ~= ARGV[4] then return moved_on() end
end
local i = 5
while i <= #ARGV do
  local count = tonumber(ARGV[i])
  redis.call(ARGV[i + 1], KEYS[tonumber(ARGV[i + 2])], unpack(ARGV, i + 3, i + 2 + count))
  i = i + 3 + count
end
redis.call('HSET', KEYS[1], 'commits', string.sub(name .. names, 1, NAMES * #name),
  'version', string.format('%.0f', tonumber(now[1] or 0) + 1))
return 1
