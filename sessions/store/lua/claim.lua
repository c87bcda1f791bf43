#!lua
-- Claim a ready step, so that one worker alone runs it; return all that it needs for that.
-- KEYS: 1 session hash, 2 wake index, 3 calls hash, 4 message log, 5 event stream
-- ARGV: 1 session id, 2 step field, 3 owner, 4 lease ms, 5 call id or '', 6 '1' to read the log,
--       7 event JSON, 8 events kept, 9 seconds that events live, 10 name of this claim
-- A step's timing is "not_before due sends token claimed_at owner"; due is '-' when only a person ends it.
-- A claimed one ends in "owner#claim": a claim whose answer was lost is made again under its name and gets the
-- same token, instead of finding itself busy until its lease is over.
-- returns {verdict, now_ms, token, fields, call request, log entries}
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local fields = redis.call('HGETALL', KEYS[1])
local at = {}
for i = 1, #fields, 2 do at[fields[i]] = i + 1 end
local mine = at[ARGV[2]]
if not mine then return {'gone', now} end
local not_before, due, sends, token = string.match(fields[mine], '^(%S+) (%S+) (%S+) (%S+)')
local again = token ~= '0' and string.match(fields[mine], '#(%x+)$') == ARGV[10]
if token ~= '0' and not again then
  if tonumber(due) > now then return {'busy', now} end
  return {'expired', now}
end
if sends == '-1' then return {'gone', now} end -- a wait: not for workers
if tonumber(not_before) > now then return {'early', now} end

if not again then
  -- Time-based, so that a token is never given twice even if the store lost its last second.
  local fence = tonumber(fields[at['fence']]) + 1
  local micros = t[1] * 1000000 + t[2]
  if micros > fence then fence = micros end
  token = string.format('%.0f', fence)
  fields[at['fence']] = token
end
local lease_end = string.format('%.0f', now + tonumber(ARGV[4]))
local claimed = not_before .. ' ' .. lease_end .. ' ' .. sends .. ' ' .. token .. ' '
  .. string.format('%.0f', now) .. ' ' .. ARGV[3] .. '#' .. ARGV[10]
fields[mine] = claimed
fields[at['version']] = string.format('%.0f', tonumber(fields[at['version']]) + 1)
redis.call('HSET', KEYS[1], ARGV[2], claimed, 'fence', fields[at['fence']], 'version', fields[at['version']])

local wake = math.huge
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 2) == 'c:' then
    local look = tonumber((string.match(fields[i + 1], '^%S+ (%S+)')))
    if look and look < wake then wake = look end
  end
end
redis.call('ZADD', KEYS[2], wake == math.huge and '+inf' or string.format('%.0f', wake), ARGV[1])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[8], '*', 'e', ARGV[7])
redis.call('EXPIRE', KEYS[5], ARGV[9])

local request = ARGV[5] ~= '' and redis.call('HGET', KEYS[3], ARGV[5]) or false
local log = {}
if ARGV[6] == '1' then
  local from = fields[at['context_from']] - (at['log_from'] and fields[at['log_from']] or 0)
  log = redis.call('LRANGE', KEYS[4], string.format('%.0f', from), -1)
end
return {'ok', now, token, fields, request, log}
