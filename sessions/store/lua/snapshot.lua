#!lua flags=no-writes
-- Read what a page shows in one consistent moment.
-- KEYS: 1 session hash, 2 message log, 3 queue texts and images, 4 event stream;  ARGV: 1 messages wanted
-- returns {now_ms, fields, latest messages, queue texts, position in the event stream}
local t = redis.call('TIME')
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
return {
  t[1] * 1000 + math.floor(t[2] / 1000),
  redis.call('HGETALL', KEYS[1]),
  redis.call('LRANGE', KEYS[2], -tonumber(ARGV[1]), -1),
  redis.call('HGETALL', KEYS[3]),
  last[1] and last[1][1] or '0-0',
}
