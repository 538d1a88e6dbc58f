-- Somebody waits for a record: tells whether it is still the same (1), and that it will be told of
-- the next change (2).
local record = KEYS[1]
local expected = ARGV[1] -- generation and version

local head = redis.call('GETRANGE', record, 0, 33)
if string.sub(head, 2, 33) ~= expected then return 0 end
if string.sub(head, 34, 34) == '1' then return 2 end
local r = redis.pcall('SETRANGE', record, 33, '1')
if type(r) == 'table' and r.err then return 1 end
return 2
