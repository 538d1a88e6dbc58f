-- Purge takes from a record what is over by the clock of the record's own server, if the record is
-- still as C has seen it: which of a cluster's servers asks for the purge must not matter. Gives 1
-- if it was done, 0 if the record is another one or nothing is over, or the generation before.
local KEYS, ARGV, call = KEYS, ARGV, redis.call

local record, arguments, outcome = KEYS[1], KEYS[2], KEYS[3]
local all, gone, open, due, generations = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
-- Those of the generation before, which takes its place; absent if there is none.
local before_record, before_arguments, before_outcome = KEYS[9], KEYS[10], KEYS[11]

local expected = ARGV[1]      -- generation and version
local member = ARGV[2]
local outcome_end = ARGV[3]   -- when these may go; empty for never
local arguments_end = ARGV[4]
local record_end = ARGV[5]
local generation = ARGV[6]
local newest = ARGV[7] == 'n'
local expected_before = ARGV[8]
local channel = ARGV[9]
local message = ARGV[10]

local cur = call('GET', record)
if not cur or string.sub(cur, 2, 33) ~= expected then return 0 end
local state = string.sub(cur, 35, 35)
if state ~= '0' and tonumber(state, 16) < 5 then return 0 end
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function over(at) return at ~= '' and tonumber(at) <= now end
if not over(record_end) then
  if not over(outcome_end) and not over(arguments_end) then return 0 end
  local again = record_end
  call('DEL', outcome)
  if over(arguments_end) then call('DEL', arguments)
  elseif arguments_end ~= '' and call('EXISTS', arguments) == 1 and
      (again == '' or tonumber(arguments_end) < tonumber(again)) then again = arguments_end end
  if again ~= '' then call('ZADD', gone, again, member)
  else call('ZREM', gone, member) end
  return 1
end
local before = nil
if newest then
  before = call('ZREVRANGEBYLEX', generations, '+', '-', 'LIMIT', 0, 1)[1]
  if before and before ~= expected_before then return before end
  if before and call('EXISTS', before_record) == 0 then
    call('ZREM', generations, before)
    return 0
  end
end
call('DEL', record, arguments, outcome)
call('ZREM', all, member)
call('ZREM', gone, member)
call('ZREM', open, state .. member)
call('ZREM', due, member)
if not newest then call('ZREM', generations, generation) end
if before then
  call('ZREM', generations, before)
  call('RENAME', before_record, record)
  if call('EXISTS', before_arguments) == 1 then call('RENAME', before_arguments, arguments) end
  if call('EXISTS', before_outcome) == 1 then call('RENAME', before_outcome, outcome) end
end
if string.sub(cur, 34, 34) == '1' then redis.pcall('PUBLISH', channel, message) end
return 1
