/*
 * The scripts: every change of the ledger is one, and a script runs alone on its server.
 *
 * Rules that all of them keep:
 *   - every key that a script decides by is among its KEYS: while a cluster moves a slot, that is
 *     how the server knows that some of them are not here. The one other is the effect that bars a
 *     write, which is in the same slot: if it cannot be read here, the caller asks for it;
 *   - all questions come before the first change, and the first change is one that a server without
 *     memory refuses. So a script is done in all its parts or in none;
 *   - numbers that may be over 2^53 stay texts: Lua knows only doubles.
 *
 * What they know of a record is its head, drawn in row.c: characters 2 to 33 are generation
 * and version, 34 is "somebody waits", 35 the state, 36 to 51 the birth, 52 to 83 the key, 84 to
 * 115 the group. States up to 4 are not settled.
 */
#include <openssl/evp.h>
#include <stdio.h>

#include "store/redis/redis.h"

#define PARTS 5u

/* Numbers of 64 bits as two: thousands of millions, and what is left. */
static const char decimal_text[] =
    "local function split(s)\n"
    "  local sign, d = 1, s\n"
    "  if string.sub(s, 1, 1) == '-' then sign, d = -1, string.sub(s, 2) end\n"
    "  return sign * (tonumber(string.sub(d, 1, -10)) or 0), sign * tonumber(string.sub(d, -9))\n"
    "end\n"
    "local function whole(h, l)\n"
    "  local c = math.floor(l / 1000000000)\n"
    "  return h + c, l - c * 1000000000\n"
    "end\n"
    "local function over(h, l, ch, cl) return h > ch or (h == ch and l > cl) end\n";

/* What is under way must be recorded, even by a server that has no memory for anything new: else
 * effects would end in doubt. Servers before Redis 7 do not understand this line. */
static const char full_text[] = "#!lua flags=allow-oom\n";

/* Claim and apply.
 *
 * KEYS  1 record, 2 arguments, 3 outcome, 4 events, 5 all, 6 open, 7 due, 8 gone, 9 log, 10 tick;
 *       then the group if there is one, the group before if it is another, the four of an older
 *       generation if this begins a new one, and the counters.
 * ARGV  1 "c" or "a", 2 generation and version expected, 3 key, 4 head, 5 tail, 6 id, 7 generation
 *       as it ends a member, 8 shard, 9 now, 10 slack, 11 event, 12 and 13 how the arguments change
 *       (+ set, = same, - none) and what to, 14 and 15 likewise the outcome, 16 due, 17 gone, 18
 *       when it bars its group (each empty for none), 19 and 20 when the server removes arguments
 *       and outcome, 21 "b" if the group may bar this write, "a" if so does who runs, 22 group, 23
 *       the group before, 24 the generation before if this is a new one, 25 channel, 26 key for the
 *       channel, 27 and 28 the newest tick that the caller has seen (empty for none) and the first,
 *       29 the hash of the record's newest event if this goes on with it; then a change, a
 * cap and an end (empty for none) for each counter, which the server removes at the latest end.
 * Gives a word, the time, the tick, and what belongs to the word. */
static const char begin_text[] =
    "local K, A, C, sub = KEYS, ARGV, redis.call, string.sub\n"
    "local t = C('TIME')\n"
    "local us = t[1] * 1000000 + t[2]\n"
    "local now = math.floor(us / 1000)\n"
    "local tick = C('GET', K[10])\n"
    "local last, first = 0, nil\n"
    "if tick then\n"
    "  last, first = string.match(tick, '^(%d+) ?(%d*)$')\n"
    "  if first == '' then first = '0' end\n"
    "  last = tonumber(last)\n"
    "end\n"
    "if A[27] ~= '' and (first ~= A[28] or last < tonumber(A[27])) then\n"
    "  return {'lost', now, tick}\n"
    "end\n"
    "local cur = C('GET', K[1])\n"
    "local function see(word)\n"
    "  return {word, now, tick, cur, C('GET', K[2]), C('GET', K[3])}\n"
    "end\n"
    "local function barred(v)\n"
    "  local said = {'barred', now, tick, v}\n"
    "  for i = 1, 3 do\n"
    "    local x = redis.pcall('GET', sub(K[i], 1, -17) .. sub(v, 17, 32))\n"
    "    said[4 + i] = type(x) == 'string' and x\n"
    "  end\n"
    "  return said\n"
    "end\n";

/* Everything that may refuse. */
static const char refuse_text[] =
    "if cur then\n"
    "  if sub(cur, 52, 83) ~= A[3] then return {'other', now, tick} end\n"
    "  if A[1] == 'c' then return see('found') end\n"
    "  if sub(cur, 2, 33) ~= A[2] or not string.find(cur, A[29], 84, true) then\n"
    "    return see('stale')\n"
    "  end\n"
    "elseif A[1] == 'a' then\n"
    "  return {'none', now, tick}\n"
    "end\n"
    "if math.abs(A[9] - now) > tonumber(A[10]) then\n"
    "  if cur then return see('stale') end\n"
    "  return {'late', now, tick}\n"
    "end\n"
    "local k, group, before, older = 11, nil, nil, nil\n"
    "if A[22] ~= '' then group, k = K[k], k + 1 end\n"
    "if A[23] ~= '' then before, k = K[k], k + 1 end\n"
    "if A[24] ~= '' then older, k = k, k + 4 end\n"
    "local born, was = nil, nil\n"
    "if cur and not older then\n"
    "  was, born = tonumber(sub(cur, 35, 35), 16), sub(cur, 36, 51)\n"
    "  local g = sub(cur, 84, 115)\n"
    "  if (was ~= 3 and was ~= 4) or g == string.rep('\\0', 32) then before = nil\n"
    "  elseif g == A[22] then before = group\n"
    "  elseif g ~= A[23] then return {'group', now, tick, g} end\n"
    "else\n"
    "  before = nil\n"
    "end\n"
    "if A[21] ~= '' then\n"
    "  local from, m = 0, nil\n"
    "  local most = A[21] == 'a' and '+inf' or now\n"
    "  repeat\n"
    "    m = C('ZRANGEBYSCORE', group, '-inf', most, 'LIMIT', from, 8)\n"
    "    for _, v in ipairs(m) do\n"
    "      if sub(v, 17, 32) ~= A[6] then return barred(v) end\n"
    "    end\n"
    "    from = from + 8\n"
    "  until #m < 8\n"
    "end\n"
    "local high, low, least, ends, left = {}, {}, {}, {}, {}\n"
    "local n = (#A - 29) / 3\n"
    "for i = 0, n - 1 do\n"
    "  local name, delta, cap = K[k + i], A[30 + 3 * i], A[31 + 3 * i]\n"
    "  if not high[name] then\n"
    "    high[name], low[name] = whole(split(C('GET', name) or '0'))\n"
    "    ends[name], left[name] = '0', C('PTTL', name)\n"
    "  end\n"
    "  local e = A[32 + 3 * i]\n"
    "  if e == '' or left[name] == -1 then ends[name] = ''\n"
    "  elseif ends[name] ~= '' and tonumber(e) > tonumber(ends[name]) then ends[name] = e end\n"
    "  local dh, dl = split(delta)\n"
    "  local h, l = whole(high[name] + dh, low[name] + dl)\n"
    "  if string.sub(delta, 1, 1) ~= '-' then\n"
    "    local ch, cl = whole(split(cap))\n"
    "    if over(h, l, ch, cl) or over(h, l, 9223372036, 854775807) then\n"
    "      return {'cap', now, tick}\n"
    "    end\n"
    "  elseif over(-9223372037, 145224192, h, l) then\n"
    "    h, l, least[name] = -9223372037, 145224192, true\n"
    "  end\n"
    "  high[name], low[name] = h, l\n"
    "end\n";

/* The change: from here on nothing refuses. */
static const char write_text[] =
    "if us <= last then us = last + 1 end\n"
    "tick = string.format('%.0f', us)\n"
    "tick = tick .. ' ' .. (first or tick)\n"
    "C('SET', K[10], tick)\n"
    "local function set(key, what, ends)\n"
    "  if ends == '' then C('SET', key, what) else C('SET', key, what, 'PXAT', ends) end\n"
    "end\n"
    "local stamp = string.format('%014x', us)\n"
    "if not born then born = stamp .. A[8] end\n"
    "local member = born .. A[6] .. A[7]\n"
    "if older then\n"
    "  C('RENAME', K[1], K[older])\n"
    "  for i = 2, 3 do\n"
    "    if C('EXISTS', K[i]) == 1 then\n"
    "      C('RENAME', K[i], K[older + i - 1])\n"
    "    end\n"
    "  end\n"
    "  C('ZADD', K[older + 3], 0, A[24])\n"
    "end\n"
    "C('SET', K[1], A[4] .. born .. A[5])\n"
    "local function payload(key, how, what, ends)\n"
    "  if how == '+' then\n"
    "    set(key, what, ends)\n"
    "    return 1\n"
    "  elseif how == '-' then\n"
    "    if was then C('DEL', key) end\n"
    "    return 0\n"
    "  end\n"
    "  if ends ~= '' then return C('PEXPIREAT', key, ends) end\n"
    "  if was == 0 or was >= 5 then C('PERSIST', key) end\n"
    "  return C('EXISTS', key)\n"
    "end\n"
    "local has_args = payload(K[2], A[12], A[13], A[19])\n"
    "local has_outcome = payload(K[3], A[14], A[15], A[20])\n"
    "local is = tonumber(sub(A[4], 35, 35), 16)\n"
    "if not was then C('ZADD', K[5], 0, member) end\n"
    "if was ~= is then\n"
    "  if was and was < 5 then C('ZREM', K[6], was .. member) end\n"
    "  if is < 5 then C('ZADD', K[6], 0, is .. member) end\n"
    "end\n"
    "if A[16] ~= '' then C('ZADD', K[7], A[16], member)\n"
    "elseif was and was < 5 then C('ZREM', K[7], member) end\n"
    "if A[17] ~= '' then C('ZADD', K[8], A[17], member)\n"
    "elseif was and (was == 0 or was >= 5) then C('ZREM', K[8], member) end\n"
    "if before and (before ~= group or A[18] == '') then C('ZREM', before, member) end\n"
    "if A[18] ~= '' then C('ZADD', group, A[18], member) end\n"
    "C('HSET', K[4], stamp, A[11])\n"
    "C('RPUSH', K[9], stamp .. A[6])\n"
    "for i = 0, n - 1 do\n"
    "  local name = K[k + i]\n"
    "  if least[name] then C('SET', name, '-9223372036854775808')\n"
    "  else C('INCRBY', name, A[30 + 3 * i]) end\n"
    "end\n"
    "for name, e in pairs(ends) do\n"
    "  if e == '' then C('PERSIST', name)\n"
    "  elseif now + left[name] < tonumber(e) or left[name] == -2 then C('PEXPIREAT', name, e)\n"
    "  elseif least[name] then C('PEXPIRE', name, left[name]) end\n"
    "end\n"
    /* Who may not publish still writes: waiters look by themselves. */
    "if cur and sub(cur, 34, 34) == '1' then redis.pcall('PUBLISH', A[25], A[26]) end\n"
    "return {'ok', now, tick, has_args, has_outcome}\n";

/* Somebody waits for a record: tells whether it is still the same (1), and that it will be told of
 * the next change (2).
 * KEYS 1 record. ARGV 1 generation and version. */
static const char watch_text[] = "local head = redis.call('GETRANGE', KEYS[1], 0, 33)\n"
                                 "if string.sub(head, 2, 33) ~= ARGV[1] then return 0 end\n"
                                 "if string.sub(head, 34, 34) == '1' then return 2 end\n"
                                 "local r = redis.pcall('SETRANGE', KEYS[1], 33, '1')\n"
                                 "if type(r) == 'table' and r.err then return 1 end\n"
                                 "return 2\n";

/* Purge takes from a record what is over by the clock of the record's own server, if the record is
 * still as C has seen it: which of a cluster's servers asks for the purge must not matter.
 * KEYS  1 record, 2 arguments, 3 outcome, 4 all, 5 gone, 6 open, 7 due, 8 older generations; and
 *       record, arguments and outcome of the generation before that takes its place, if there is
 *       one.
 * ARGV  1 generation and version, 2 member, 3 to 5 when outcome, arguments and record may go (each
 *       empty for never), 6 the generation, 7 "n" if it is the newest, 8 the generation before, 9
 *       channel, 10 key for the channel.
 * Gives 1 if it was done, 0 if the record is another one or nothing is over, or the generation
 * before. */
static const char reap_text[] =
    "local K, A = KEYS, ARGV\n"
    "local cur = redis.call('GET', K[1])\n"
    "if not cur or string.sub(cur, 2, 33) ~= A[1] then return 0 end\n"
    "local state = string.sub(cur, 35, 35)\n"
    "if state ~= '0' and tonumber(state, 16) < 5 then return 0 end\n"
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local function over(at) return at ~= '' and tonumber(at) <= now end\n"
    "if not over(A[5]) then\n"
    "  if not over(A[3]) and not over(A[4]) then return 0 end\n"
    "  local again = A[5]\n"
    "  redis.call('DEL', K[3])\n"
    "  if over(A[4]) then redis.call('DEL', K[2])\n"
    "  elseif A[4] ~= '' and redis.call('EXISTS', K[2]) == 1 and\n"
    "      (again == '' or tonumber(A[4]) < tonumber(again)) then again = A[4] end\n"
    "  if again ~= '' then redis.call('ZADD', K[5], again, A[2])\n"
    "  else redis.call('ZREM', K[5], A[2]) end\n"
    "  return 1\n"
    "end\n"
    "local before = nil\n"
    "if A[7] == 'n' then\n"
    "  before = redis.call('ZREVRANGEBYLEX', K[8], '+', '-', 'LIMIT', 0, 1)[1]\n"
    "  if before and before ~= A[8] then return before end\n"
    "  if before and redis.call('EXISTS', K[9]) == 0 then\n"
    "    redis.call('ZREM', K[8], before)\n"
    "    return 0\n"
    "  end\n"
    "end\n"
    "redis.call('DEL', K[1], K[2], K[3])\n"
    "redis.call('ZREM', K[4], A[2])\n"
    "redis.call('ZREM', K[5], A[2])\n"
    "redis.call('ZREM', K[6], state .. A[2])\n"
    "redis.call('ZREM', K[7], A[2])\n"
    "if A[7] ~= 'n' then redis.call('ZREM', K[8], A[6]) end\n"
    "if before then\n"
    "  redis.call('ZREM', K[8], before)\n"
    "  for i = 1, 3 do\n"
    "    if redis.call('EXISTS', K[8 + i]) == 1 then redis.call('RENAME', K[8 + i], K[i]) end\n"
    "  end\n"
    "end\n"
    "if string.sub(cur, 34, 34) == '1' then redis.pcall('PUBLISH', A[9], A[10]) end\n"
    "return 1\n";

/* Gives events their seq, those that have none yet.
 * KEYS 1 epoch, 2 seq, 3 log. ARGV 1 the epoch in which the events were read, then the events.
 * Gives the last seq, or -1 if events were removed since: one of these may be among them. */
static const char number_text[] =
    "if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return -1 end\n"
    "local seq = tonumber(redis.call('GET', KEYS[2]) or '0')\n"
    "local first = seq\n"
    "for i = 2, #ARGV do\n"
    "  if not redis.call('ZSCORE', KEYS[3], ARGV[i]) then\n"
    "    seq = seq + 1\n"
    "    redis.call('ZADD', KEYS[3], seq, ARGV[i])\n"
    "  end\n"
    "end\n"
    "if seq > first then redis.call('SET', KEYS[2], string.format('%.0f', seq)) end\n"
    "return seq\n";

/* Events that have their seq leave the queue, from its head on: what is not there has been taken
 * by somebody else, and to search a long queue for it would hold up the server.
 * KEYS 1 log of the shard. ARGV entries in their order. */
static const char dequeue_text[] = "local head = redis.call('LINDEX', KEYS[1], 0)\n"
                                   "for i = 1, #ARGV do\n"
                                   "  if head == ARGV[i] then\n"
                                   "    redis.call('LPOP', KEYS[1])\n"
                                   "    head = redis.call('LINDEX', KEYS[1], 0)\n"
                                   "  end\n"
                                   "end\n"
                                   "return 1\n";

/* Events that were removed lose their seq. KEYS 1 epoch, 2 log. ARGV events. */
static const char unnumber_text[] =
    "local n = 0\n"
    "for i = 1, #ARGV do n = n + redis.call('ZREM', KEYS[2], ARGV[i]) end\n"
    "if n > 0 then redis.call('INCR', KEYS[1]) end\n"
    "return n\n";

/* Writes a seal. KEYS 1 seq, 2 sealed, 3 seals. ARGV 1 the newest seal's seq, 2 seal.
 * Gives its seq, or 0 if another seal is the newest. */
static const char seal_text[] = "local newest = redis.call('ZREVRANGE', KEYS[2], 0, 0)[1] or '0'\n"
                                "if newest ~= ARGV[1] then return 0 end\n"
                                "local seq = tonumber(redis.call('GET', KEYS[1]) or '0') + 1\n"
                                "local text = string.format('%.0f', seq)\n"
                                "redis.call('SET', KEYS[1], text)\n"
                                "redis.call('HSET', KEYS[3], text, ARGV[2])\n"
                                "redis.call('ZADD', KEYS[2], seq, text)\n"
                                "return seq\n";

/* Removes a note. KEYS 1 notes of its id, 2 notes by age. ARGV 1 its time, 2 its serial, 3 its
 * entry by age. */
static const char note_drop_text[] =
    "for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[1])) do\n"
    "  if string.sub(m, 1, #ARGV[2]) == ARGV[2] then redis.call('ZREM', KEYS[1], m) end\n"
    "end\n"
    "return redis.call('ZREM', KEYS[2], ARGV[3])\n";

/* Checks that sets and records agree, and that no key expires. KEYS 1 all, 2 open, 3 gone, then two
 * for each member: the newest generation and this one as an older one. ARGV 1 "all" or "open", then
 * members. Gives the first member that is wrong, or nothing. */
static const char check_text[] =
    "local C, sub = redis.call, string.sub\n"
    "for i = 1, 2 do\n"
    "  if C('PTTL', KEYS[i]) >= 0 then return ARGV[2] end\n"
    "end\n"
    "for i = 2, #ARGV do\n"
    "  local m, state = ARGV[i], nil\n"
    "  local there = C('ZSCORE', ARGV[1] == 'all' and KEYS[1] or KEYS[2], m)\n"
    "  if ARGV[1] == 'open' then state, m = sub(m, 1, 1), sub(m, 2) end\n"
    "  local r, group = nil, nil\n"
    "  for k = 2 * i, 2 * i + 1 do\n"
    "    local head = C('GETRANGE', KEYS[k], 0, 114)\n"
    "    if sub(head, 36, 51) == sub(m, 1, 16) and\n"
    "        string.gsub(sub(head, 2, 17), '^0+', '') == sub(m, 33) then\n"
    "      r, group = sub(head, 35, 35), sub(head, 84, 115)\n"
    "      if C('PTTL', KEYS[k]) >= 0 then return ARGV[i] end\n"
    "    end\n"
    "  end\n"
    "  if there and tonumber(there) ~= 0 then return ARGV[i] end\n"
    "  if there and state and r ~= state then\n"
    "    if r or state ~= '0' or not C('ZSCORE', KEYS[3], m) then return ARGV[i] end\n"
    "  end\n"
    "  if there and not state then\n"
    "    if not r and not C('ZSCORE', KEYS[3], m) then return ARGV[i] end\n"
    "    if r and tonumber(r, 16) < 5 and not C('ZSCORE', KEYS[2], r .. m) then\n"
    "      return ARGV[i]\n"
    "    end\n"
    "  end\n"
    "  if there and (r == '3' or r == '4') and group ~= string.rep('\\0', 32) and\n"
    "      not C('ZSCORE', sub(KEYS[1], 1, -4) .. 'g:' .. group, m) then\n"
    "    return ARGV[i]\n"
    "  end\n"
    "end\n"
    "return false\n";

/* Checks that every member of a group's set bars the group, and from the time that the set says.
 * KEYS 1 the set. Gives the first member that is wrong, or nothing. The end of a lease is the
 * eighth number after a record's hashes. */
static const char group_text[] =
    "local sub = string.sub\n"
    "local base, group = sub(KEYS[1], 1, -35), sub(KEYS[1], -32)\n"
    "local function lease_end(r)\n"
    "  local i = 116\n"
    "  for _ = 1, 7 do\n"
    "    while (string.byte(r, i) or 0) >= 128 do i = i + 1 end\n"
    "    i = i + 1\n"
    "  end\n"
    "  local n, by = 0, 1\n"
    "  repeat\n"
    "    local b = string.byte(r, i) or 0\n"
    "    n, by, i = n + (b % 128) * by, by * 128, i + 1\n"
    "  until b < 128\n"
    "  return n > 0 and n or 9223372036854775807\n"
    "end\n"
    "local m = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')\n"
    "if redis.call('PTTL', KEYS[1]) >= 0 then return m[1] end\n"
    "for i = 1, #m, 2 do\n"
    "  local v = m[i]\n"
    "  local at = base .. 'r:' .. sub(v, 17, 32)\n"
    "  local r = redis.call('GET', at)\n"
    "  local function is() return r and string.gsub(sub(r, 2, 17), '^0+', '') == sub(v, 33) end\n"
    "  if not is() then r = redis.call('GET', at .. ':' .. sub(v, 33)) end\n"
    "  if not is() or sub(r, 36, 51) ~= sub(v, 1, 16) or sub(r, 84, 115) ~= group then\n"
    "    return v\n"
    "  end\n"
    "  local state, from = sub(r, 35, 35), nil\n"
    "  if state == '4' then from = 0 elseif state == '3' then from = lease_end(r) end\n"
    "  if from ~= tonumber(m[i + 1]) then return v end\n"
    "end\n"
    "return false\n";

/* In several parts: one text would be longer than C allows. */
static const char *const parts[SM_RD_SCRIPT_COUNT][PARTS] = {
    [SM_RD_WRITE] = {decimal_text, begin_text, refuse_text, write_text},
    [SM_RD_RECORD] = {full_text, decimal_text, begin_text, refuse_text, write_text},
    [SM_RD_WATCH] = {watch_text},
    [SM_RD_REAP] = {reap_text},
    [SM_RD_NUMBER] = {number_text},
    [SM_RD_DEQUEUE] = {dequeue_text},
    [SM_RD_UNNUMBER] = {unnumber_text},
    [SM_RD_SEAL] = {seal_text},
    [SM_RD_NOTE_DROP] = {note_drop_text},
    [SM_RD_CHECK] = {check_text},
    [SM_RD_GROUP] = {group_text},
};

size_t sm_rd_script_put(sm_rd_script script, sm_buf *out)
{
    size_t n = 0;
    for (size_t i = 0; i < PARTS && parts[script][i] != NULL; i++) {
        n += strlen(parts[script][i]);
        if (out != NULL)
            sm_buf_text(out, parts[script][i]);
    }
    return n;
}

/* A server knows a script by the SHA-1 of its text. */
semel_err sm_rd_script_names(char names[SM_RD_SCRIPT_COUNT][SM_RD_SHA + 1])
{
    semel_err e = SEMEL_OK;
    sm_buf text;
    sm_buf_init(&text, 1 << 16);
    for (size_t i = 0; e == SEMEL_OK && i < SM_RD_SCRIPT_COUNT; i++) {
        unsigned char digest[EVP_MAX_MD_SIZE];
        size_t n = 0;
        sm_buf_clear(&text);
        sm_rd_script_put((sm_rd_script)i, &text);
        if (text.err != SM_OK ||
            EVP_Q_digest(NULL, "SHA1", NULL, text.p, text.len, digest, &n) != 1 ||
            n * 2 != SM_RD_SHA) {
            e = SEMEL_E_CRYPTO;
            break;
        }
        for (size_t k = 0; k < n; k++)
            snprintf(names[i] + 2 * k, 3, "%02x", digest[k]);
    }
    sm_buf_fini(&text);
    return e;
}
