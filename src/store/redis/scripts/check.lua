-- Checks that sets and records agree, and that no key expires. Gives the first member that is
-- wrong, or nothing.
local KEYS, ARGV, call, sub = KEYS, ARGV, redis.call, string.sub
local all, open, gone = KEYS[1], KEYS[2], KEYS[3]
local set = ARGV[1] -- 'all' or 'open'
local MEMBERS = 2   -- from here
local RECORDS = 4   -- from here two keys for each: the newest generation, and this as an older one

if call('PTTL', all) >= 0 or call('PTTL', open) >= 0 then return ARGV[MEMBERS] end
for i = MEMBERS, #ARGV do
  local m, state = ARGV[i], nil
  local there = call('ZSCORE', set == 'all' and all or open, m)
  if set == 'open' then state, m = sub(m, 1, 1), sub(m, 2) end
  local r, group = nil, nil
  local at = RECORDS + 2 * (i - MEMBERS)
  for k = at, at + 1 do
    local head = call('GETRANGE', KEYS[k], 0, 114)
    if sub(head, 36, 51) == sub(m, 1, 16) and
        string.gsub(sub(head, 2, 17), '^0+', '') == sub(m, 33) then
      r, group = sub(head, 35, 35), sub(head, 84, 115)
      if call('PTTL', KEYS[k]) >= 0 then return ARGV[i] end
    end
  end
  if there and tonumber(there) ~= 0 then return ARGV[i] end
  if there and state and r ~= state then
    if r or state ~= '0' or not call('ZSCORE', gone, m) then return ARGV[i] end
  end
  if there and not state then
    if not r and not call('ZSCORE', gone, m) then return ARGV[i] end
    if r and tonumber(r, 16) < 5 and not call('ZSCORE', open, r .. m) then
      return ARGV[i]
    end
  end
  if there and (r == '3' or r == '4') and group ~= string.rep('\0', 32) and
      not call('ZSCORE', sub(all, 1, -4) .. 'g:' .. group, m) then
    return ARGV[i]
  end
end
return false
