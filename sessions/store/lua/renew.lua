#!lua
-- Lengthen the lease of a claim that still holds.
-- KEYS: 1 session hash, 2 wake index;  ARGV: 1 session id, 2 step field, 3 token, 4 lease ms
-- returns 1, or 0 when the claim is gone
local timing = redis.call('HGET', KEYS[1], ARGV[2])
if not timing then return 0 end
local not_before, due, sends, token, rest = string.match(timing, '^(%S+) (%S+) (%S+) (%S+) (.*)$')
if token ~= ARGV[3] then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease_end = string.format('%.0f', now + tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], ARGV[2],
  not_before .. ' ' .. lease_end .. ' ' .. sends .. ' ' .. token .. ' ' .. rest)
-- Somebody may be deciding that the expired lease is dead: a new version makes him look again.
if tonumber(due) <= now then redis.call('HINCRBY', KEYS[1], 'version', 1) end

local wake = math.huge
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 2) == 'c:' then
    local look = tonumber((string.match(fields[i + 1], '^%S+ (%S+)')))
    if look and look < wake then wake = look end
  end
end
redis.call('ZADD', KEYS[2], wake == math.huge and '+inf' or string.format('%.0f', wake), ARGV[1])
return 1
