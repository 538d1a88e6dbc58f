-- Writes a seal. Gives its seq, or 0 if another seal is the newest.
local seq, sealed, seals = KEYS[1], KEYS[2], KEYS[3]
local expected = ARGV[1] -- the newest seal's seq
local seal = ARGV[2]

local newest = redis.call('ZREVRANGE', sealed, 0, 0)[1] or '0'
if newest ~= expected then return 0 end
local own = tonumber(redis.call('GET', seq) or '0') + 1
local text = string.format('%.0f', own)
redis.call('SET', seq, text)
redis.call('HSET', seals, text, seal)
redis.call('ZADD', sealed, own, text)
return own
