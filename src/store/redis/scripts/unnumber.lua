-- Events that were removed lose their seq. Gives how many had one.
local ARGV, call = ARGV, redis.call -- ARGV: events
local epoch, log = KEYS[1], KEYS[2]

local n = 0
for i = 1, #ARGV do n = n + call('ZREM', log, ARGV[i]) end
if n > 0 then call('INCR', epoch) end
return n
