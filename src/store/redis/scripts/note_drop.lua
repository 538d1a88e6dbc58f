-- Removes a note. Gives 1 if it was there.
local own, notes = KEYS[1], KEYS[2] -- those of its id, and all by age
local time = ARGV[1]
local serial = ARGV[2]
local entry = ARGV[3]               -- by age

for _, m in ipairs(redis.call('ZRANGEBYSCORE', own, time, time)) do
  if string.sub(m, 1, #serial) == serial then redis.call('ZREM', own, m) end
end
return redis.call('ZREM', notes, entry)
