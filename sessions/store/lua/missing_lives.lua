#!lua flags=no-writes
-- Say which of the processes that are registered as alive hold no subscription to their channel.
-- KEYS: 1 lives;  ARGV: 1 what channels begin with, 2 the asker
-- returns {1 if the asker itself is registered and seen else 0, owner, record, ...}
local function seen(owner)
  return redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. owner)[2] > 0
end
local fields = redis.call('HGETALL', KEYS[1])
local reply = {0}
for i = 1, #fields, 2 do
  if not seen(fields[i]) then
    reply[#reply + 1] = fields[i]
    reply[#reply + 1] = fields[i + 1]
  elseif fields[i] == ARGV[2] then
    reply[1] = 1
  end
end
return reply
