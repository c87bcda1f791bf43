#!lua flags=no-writes
-- Read a stretch of the conversation, as far as it is in the log; the rest is in chunks.
-- KEYS: 1 session hash, 2 message log;  ARGV: 1 seq to end before ('' for the latest), 2 messages wanted
-- returns {now_ms, fields, first seq, seq after the last, log entries}
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local kept = redis.call('HMGET', KEYS[1], 'log_from', 'oldest')
local log_from, oldest = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
local ends = log_from + redis.call('LLEN', KEYS[2])
if ARGV[1] ~= '' then ends = math.min(ends, tonumber(ARGV[1])) end
ends = math.max(ends, oldest)
local first = math.max(ends - tonumber(ARGV[2]), oldest)
local log = {}
if ends > log_from then
  log = redis.call('LRANGE', KEYS[2], math.max(first - log_from, 0), ends - log_from - 1)
end
return {now, redis.call('HGETALL', KEYS[1]), first, ends, log}
