#!lua
-- preheat: makes all keys of a run of one segment together, if none of them is there; then reads them back.
--
-- Repeating it changes nothing: a run that `meta` knows is only read (article 1.4: a preheat repeated in mid-sale reset
-- the stock and oversold). The caller compares what was read with the database.
--
-- Cost    O(shards)
-- KEYS    1 meta   2 stock   3 outbox   4 lent   5… all buyer shards of the run
-- ARGV    1 'write' or 'compare'   2 run   3 version   4 opensAt ms   5 endsAt ms   6 per-buyer limit   7 units
--         8 expiry of the keys, epoch ms; shards expire spread over the ten minutes after it
-- Returns {'written' | 'read' | 'missing', fence, run, state, version, opensAt, endsAt, limit,
--          stock, length of outbox, guards found, lowest expiry, epoch ms, replication id of this server}
--           absent values as ''; the first replication id is that of `meta`: on another server the gate stays shut
--         {'refused', reason}   nothing was written
-- Keeps   all keys of a run or none; a later run is never overwritten by an earlier one.

local function kind(key) return redis.call('TYPE', key).ok end

local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return {'refused', 'role'} end
local replid = string.match(info, 'master_replid:(%x+)')

local metaKind = kind(KEYS[1])
if metaKind ~= 'none' and metaKind ~= 'hash' then return {'refused', 'meta is a ' .. metaKind} end
local present = redis.call('HGET', KEYS[1], 'run')
if metaKind == 'hash' and not (present and string.find(present, '^%d+$')) then return {'refused', 'meta has no run'} end

local verdict = 'read'
if not present or tonumber(present) < tonumber(ARGV[2]) then
  if ARGV[1] ~= 'write' then
    verdict = 'missing'
  else
    for k = 2, #KEYS do
      if kind(KEYS[k]) ~= 'none' then return {'refused', 'exists: ' .. KEYS[k]} end
    end
    local expireAt = tonumber(ARGV[8])
    local now = redis.call('TIME')
    -- a deadline in the past would delete the keys at once
    if expireAt <= now[1] * 1000 then return {'refused', 'expiry in the past'} end
    redis.call('SET', KEYS[2], ARGV[7], 'PXAT', ARGV[8], 'NX')
    -- an empty stream that exists tells "lost" from "empty"
    redis.call('XADD', KEYS[3], '0-1', 'n', '0')
    redis.call('XDEL', KEYS[3], '0-1')
    redis.call('PEXPIREAT', KEYS[3], ARGV[8])
    redis.call('HSET', KEYS[4], '#', '1')
    redis.call('PEXPIREAT', KEYS[4], ARGV[8])
    local shards = #KEYS - 4
    for k = 5, #KEYS do
      redis.call('HSET', KEYS[k], '#', '1')
      redis.call('PEXPIREAT', KEYS[k], string.format('%.0f', expireAt + math.floor((k - 5) * 600000 / shards)))
    end
    redis.call('HSET', KEYS[1], 'run', ARGV[2], 'fence', replid, 'state', 'shut', 'version', ARGV[3],
      'opensAt', ARGV[4], 'endsAt', ARGV[5], 'perBuyerLimit', ARGV[6],
      'seq', '0', 'added', '0', 'moved', '0', 'landed', '0', 'latchUntil', '0')
    redis.call('PEXPIREAT', KEYS[1], ARGV[8])
    verdict = 'written'
  end
end

local meta = redis.call('HMGET', KEYS[1], 'run', 'state', 'version', 'opensAt', 'endsAt', 'perBuyerLimit', 'fence')
local stock = redis.pcall('GET', KEYS[2])
if type(stock) == 'table' then stock = 'a ' .. kind(KEYS[2]) end
local length = redis.pcall('XLEN', KEYS[3])
if type(length) == 'table' then length = 'a ' .. kind(KEYS[3])
elseif kind(KEYS[3]) == 'none' then length = '' end
local guards, lowest = 0, nil
for k = 1, #KEYS do
  if k >= 5 then
    local guard = redis.pcall('HGET', KEYS[k], '#')
    if type(guard) == 'string' then guards = guards + 1 end
  end
  local at = redis.call('PEXPIRETIME', KEYS[k])
  if not lowest or at < lowest then lowest = at end
end
return {verdict, meta[7] or '', meta[1] or '', meta[2] or '', meta[3] or '', meta[4] or '', meta[5] or '', meta[6] or '',
  stock or '', tostring(length), tostring(guards), string.format('%.0f', lowest), replid}
