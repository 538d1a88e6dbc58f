-- Claim and apply: writes a record, its event and its counters, or refuses. Gives a word, the time,
-- the stamps, and what belongs to the word.
-- script.c has the rules that all scripts keep, and the record's head; write.c puts the arguments.
local KEYS, ARGV = KEYS, ARGV -- as all that is used often: locals are quicker than globals
local call, sub = redis.call, string.sub

local record, arguments, outcome, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local all, open, due, gone = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local log, tick = KEYS[9], KEYS[10]

local action = ARGV[1]          -- 'c': claim, 'a': apply
local expected = ARGV[2]        -- generation and version
local key = ARGV[3]
local head = ARGV[4]            -- the record, but for its birth, which goes in between
local tail = ARGV[5]
local id = ARGV[6]
local generation = ARGV[7]      -- as it ends a member
local shard = ARGV[8]
local caller_now = ARGV[9]      -- the caller's time, and how far it may be from the server's
local slack = ARGV[10]
local event = ARGV[11]
local arguments_how = ARGV[12]  -- how they change: '+' set, '=' same, '-' none; and what to
local arguments_text = ARGV[13]
local outcome_how = ARGV[14]    -- likewise
local outcome_text = ARGV[15]
local due_at = ARGV[16]         -- these three are empty for never
local gone_at = ARGV[17]
local bars_at = ARGV[18]        -- when it bars its group
local arguments_end = ARGV[19]  -- when the server removes them; empty for never
local outcome_end = ARGV[20]
local barred_by = ARGV[21]      -- 'b' if the group may bar this write, 'a' if so does who runs
local group_name = ARGV[22]     -- empty for none
local before_name = ARGV[23]    -- the group before, if it is another; empty for none
local older = ARGV[24]          -- the generation before, if this begins a new one; else empty
local channel = ARGV[25]
local message = ARGV[26]
local seen_last = ARGV[27]      -- the newest stamp that the caller has seen, empty for none; and
local seen_first = ARGV[28]     -- the first one
local newest_event = ARGV[29]   -- its hash, if this goes on with the record; else empty
local COUNTERS = 30             -- from here a change, a cap and an end (empty for none) for each

-- Then come the keys that are not always there.
local at, group, before = 11, nil, nil
local older_record, older_arguments, older_outcome, generations
if group_name ~= '' then group, at = KEYS[at], at + 1 end
if before_name ~= '' then before, at = KEYS[at], at + 1 end
if older ~= '' then
  older_record, older_arguments, older_outcome = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  generations, at = KEYS[at + 3], at + 4
end
local counters = at             -- from here one for each

-- What is there.
local t = call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local stamps = call('GET', tick)
local last, first = 0, nil
if stamps then
  last, first = string.match(stamps, '^(%d+) ?(%d*)$')
  if first == '' then first = '0' end
  last = tonumber(last)
end
if seen_last ~= '' and (first ~= seen_first or last < tonumber(seen_last)) then
  return {'lost', now, stamps}
end
local cur = call('GET', record)

-- Everything that may refuse.
local word = nil
if cur then
  if sub(cur, 52, 83) ~= key then return {'other', now, stamps} end
  if action == 'c' then word = 'found'
  elseif sub(cur, 2, 33) ~= expected or not string.find(cur, newest_event, 84, true) then
    word = 'stale'
  end
elseif action == 'a' then
  return {'none', now, stamps}
end
if not word and math.abs(caller_now - now) > tonumber(slack) then
  if not cur then return {'late', now, stamps} end
  word = 'stale'
end
if word then return {word, now, stamps, cur, call('GET', arguments), call('GET', outcome)} end
local born, was = nil, nil
if cur and older == '' then
  was, born = tonumber(sub(cur, 35, 35), 16), sub(cur, 36, 51)
  local g = sub(cur, 84, 115)
  if (was ~= 3 and was ~= 4) or g == string.rep('\0', 32) then before = nil
  elseif g == group_name then before = group
  elseif g ~= before_name then return {'group', now, stamps, g} end
else
  before = nil
end
if barred_by ~= '' then
  local from, m = 0, nil
  local most = barred_by == 'a' and '+inf' or now
  repeat
    m = call('ZRANGEBYSCORE', group, '-inf', most, 'LIMIT', from, 8)
    for _, v in ipairs(m) do
      local who = sub(v, 17, 32)
      if who ~= id then
        local function its(name)
          local x = redis.pcall('GET', sub(name, 1, -17) .. who)
          return type(x) == 'string' and x
        end
        return {'barred', now, stamps, v, its(record), its(arguments), its(outcome)}
      end
    end
    from = from + 8
  until #m < 8
end

-- Counters may refuse, too. Numbers of 64 bits as two: thousands of millions, and what is left.
local function split(s)
  local sign, d = 1, s
  if sub(s, 1, 1) == '-' then sign, d = -1, sub(s, 2) end
  return sign * (tonumber(sub(d, 1, -10)) or 0), sign * tonumber(sub(d, -9))
end
local function whole(h, l)
  local c = math.floor(l / 1000000000)
  return h + c, l - c * 1000000000
end
local function over(h, l, ch, cl) return h > ch or (h == ch and l > cl) end
local high, low, least, ends, left = {}, {}, {}, {}, {}
local n = (#ARGV - COUNTERS + 1) / 3
for i = 0, n - 1 do
  local a = COUNTERS + 3 * i
  local name, delta, cap, e = KEYS[counters + i], ARGV[a], ARGV[a + 1], ARGV[a + 2]
  if not high[name] then
    high[name], low[name] = whole(split(call('GET', name) or '0'))
    ends[name], left[name] = '0', call('PTTL', name)
  end
  if e == '' or left[name] == -1 then ends[name] = ''
  elseif ends[name] ~= '' and tonumber(e) > tonumber(ends[name]) then ends[name] = e end
  local dh, dl = split(delta)
  local h, l = whole(high[name] + dh, low[name] + dl)
  if sub(delta, 1, 1) ~= '-' then
    local ch, cl = whole(split(cap))
    if over(h, l, ch, cl) or over(h, l, 9223372036, 854775807) then
      return {'cap', now, stamps}
    end
  elseif over(-9223372037, 145224192, h, l) then
    h, l, least[name] = -9223372037, 145224192, true
  end
  high[name], low[name] = h, l
end

-- The change: from here on nothing refuses.
if us <= last then us = last + 1 end
stamps = string.format('%.0f', us)
stamps = stamps .. ' ' .. (first or stamps)
call('SET', tick, stamps)
local stamp = string.format('%014x', us)
if not born then born = stamp .. shard end
local member = born .. id .. generation
if older ~= '' then
  call('RENAME', record, older_record)
  if call('EXISTS', arguments) == 1 then call('RENAME', arguments, older_arguments) end
  if call('EXISTS', outcome) == 1 then call('RENAME', outcome, older_outcome) end
  call('ZADD', generations, 0, older)
end
call('SET', record, head .. born .. tail)
local function payload(name, how, what, ends_at)
  if how == '+' then
    if ends_at == '' then call('SET', name, what)
    else call('SET', name, what, 'PXAT', ends_at) end
    return 1
  elseif how == '-' then
    if was then call('DEL', name) end
    return 0
  end
  if ends_at ~= '' then return call('PEXPIREAT', name, ends_at) end
  if was == 0 or was >= 5 then call('PERSIST', name) end
  return call('EXISTS', name)
end
local has_arguments = payload(arguments, arguments_how, arguments_text, arguments_end)
local has_outcome = payload(outcome, outcome_how, outcome_text, outcome_end)
local is = tonumber(sub(head, 35, 35), 16)
if not was then call('ZADD', all, 0, member) end
if was ~= is then
  if was and was < 5 then call('ZREM', open, was .. member) end
  if is < 5 then call('ZADD', open, 0, is .. member) end
end
if due_at ~= '' then call('ZADD', due, due_at, member)
elseif was and was < 5 then call('ZREM', due, member) end
if gone_at ~= '' then call('ZADD', gone, gone_at, member)
elseif was and (was == 0 or was >= 5) then call('ZREM', gone, member) end
if before and (before ~= group or bars_at == '') then call('ZREM', before, member) end
if bars_at ~= '' then call('ZADD', group, bars_at, member) end
call('HSET', events, stamp, event)
call('RPUSH', log, stamp .. id)
for i = 0, n - 1 do
  local name = KEYS[counters + i]
  if least[name] then call('SET', name, '-9223372036854775808')
  else call('INCRBY', name, ARGV[COUNTERS + 3 * i]) end
end
for name, e in pairs(ends) do
  if e == '' then call('PERSIST', name)
  elseif now + left[name] < tonumber(e) or left[name] == -2 then call('PEXPIREAT', name, e)
  elseif least[name] then call('PEXPIRE', name, left[name]) end
end
-- Who may not publish still writes: waiters look by themselves.
if cur and sub(cur, 34, 34) == '1' then redis.pcall('PUBLISH', channel, message) end
return {'ok', now, stamps, has_arguments, has_outcome}
