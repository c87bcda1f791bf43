#!lua
-- Take sessions that are due from a partition's wake index. Each is put off by a moment rather than
-- removed: if the taker dies, somebody else looks at it then.
-- KEYS: 1 wake index;  ARGV: 1 most sessions, 2 ms to put off
-- returns session ids
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, ARGV[1])
local later = string.format('%.0f', now + tonumber(ARGV[2]))
for _, id in ipairs(due) do redis.call('ZADD', KEYS[1], later, id) end
return due
