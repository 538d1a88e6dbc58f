-- Checks that every member of a group's set bars the group, and from the time that the set says.
-- Gives the first member that is wrong, or nothing.
local set = KEYS[1]

local call, sub = redis.call, string.sub
local base, group = sub(set, 1, -35), sub(set, -32)
-- The end of a lease is the eighth number after a record's hashes.
local function lease_end(r)
  local i = 116
  for _ = 1, 7 do
    while (string.byte(r, i) or 0) >= 128 do i = i + 1 end
    i = i + 1
  end
  local n, by = 0, 1
  repeat
    local b = string.byte(r, i) or 0
    n, by, i = n + (b % 128) * by, by * 128, i + 1
  until b < 128
  return n > 0 and n or 9223372036854775807
end
local m = call('ZRANGE', set, 0, -1, 'WITHSCORES')
if call('PTTL', set) >= 0 then return m[1] end
for i = 1, #m, 2 do
  local v = m[i]
  local at = base .. 'r:' .. sub(v, 17, 32)
  local r = call('GET', at)
  local function is() return r and string.gsub(sub(r, 2, 17), '^0+', '') == sub(v, 33) end
  if not is() then r = call('GET', at .. ':' .. sub(v, 33)) end
  if not is() or sub(r, 36, 51) ~= sub(v, 1, 16) or sub(r, 84, 115) ~= group then
    return v
  end
  local state, from = sub(r, 35, 35), nil
  if state == '4' then from = 0 elseif state == '3' then from = lease_end(r) end
  if from ~= tonumber(m[i + 1]) then return v end
end
return false
