#!lua flags=no-writes
-- Read a session's control state in one consistent moment.
-- KEYS[1] session hash
-- returns {now_ms, {field, value, ...}}
local t = redis.call('TIME')
return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('HGETALL', KEYS[1])}
