-- Events that have their seq leave the queue, from its head on: what is not there has been taken by
-- somebody else, and to search a long queue for it would hold up the server.
local ARGV, call = ARGV, redis.call -- ARGV: entries in their order
local log = KEYS[1]                 -- of the shard

local head = call('LINDEX', log, 0)
for i = 1, #ARGV do
  if head == ARGV[i] then
    call('LPOP', log)
    head = call('LINDEX', log, 0)
  end
end
return 1
