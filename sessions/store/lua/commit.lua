#!lua
-- One guarded commit: a list of writes that all happen, or none.
-- KEYS: 1 session hash, then every key that is written
-- ARGV: 1 expected version ('' for a session that must not exist yet),
--       2 step field and 3 token of the claim that must still hold ('' for none),
--       then for each write: count, command, index into KEYS, arguments (count of them)
-- returns 1, or 0 when the session has moved on
local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then
  local timing = redis.call('HGET', KEYS[1], ARGV[2])
  if not timing or string.match(timing, '^%S+ %S+ %S+ (%S+)') ~= ARGV[3] then return 0 end
end
local i = 4
while i <= #ARGV do
  local count = tonumber(ARGV[i])
  redis.call(ARGV[i + 1], KEYS[tonumber(ARGV[i + 2])], unpack(ARGV, i + 3, i + 2 + count))
  i = i + 3 + count
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
