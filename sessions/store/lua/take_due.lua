#!lua
-- Take sessions that are due from wake or pack indexes. Each is put off by a moment rather than removed: if the
-- taker dies, somebody else looks at it then.
-- KEYS: the indexes;  ARGV: 1 most sessions of each, 2 ms to put off
-- returns session ids
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local until_now = string.format('%.0f', now)
local later = string.format('%.0f', now + tonumber(ARGV[2]))
local taken = {}
for _, key in ipairs(KEYS) do
  local due = redis.call('ZRANGE', key, '-inf', until_now, 'BYSCORE', 'LIMIT', 0, ARGV[1])
  for _, id in ipairs(due) do
    redis.call('ZADD', key, later, id)
    taken[#taken + 1] = id
  end
end
return taken
