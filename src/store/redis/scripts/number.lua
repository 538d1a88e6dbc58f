-- Gives events their seq, those that have none yet. Gives the last seq, or -1 if events were
-- removed since these were read: one of them may be among those.
local ARGV, call = ARGV, redis.call
local epoch, seq, log = KEYS[1], KEYS[2], KEYS[3]
local epoch_read = ARGV[1] -- that in which the events were read
local EVENTS = 2           -- from here

if (call('GET', epoch) or '0') ~= epoch_read then return -1 end
local last = tonumber(call('GET', seq) or '0')
local first = last
for i = EVENTS, #ARGV do
  if not call('ZSCORE', log, ARGV[i]) then
    last = last + 1
    call('ZADD', log, last, ARGV[i])
  end
end
if last > first then call('SET', seq, string.format('%.0f', last)) end
return last
