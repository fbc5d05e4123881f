#!lua
-- gate-change: brings state, window and limit of one segment to a version of the activity's row.
--
-- Cost    O(shards)
-- KEYS    1 meta   2 stock   3 outbox   4 lent   5… all buyer shards of the run: their expiry moves with the end of the sale
-- ARGV    1 run   2 version   3 state (open | paused | ended | shut)   4 opensAt ms   5 endsAt ms   6 per-buyer limit
--         7 expiry of the keys, epoch ms; shards expire spread over the ten minutes after it
-- Returns 'done' | 'older' (the gate has this version or a later one) | 'other_run' | 'missing' (or unreadable) | 'role' |
--         'past' (the expiry)
-- Keeps   versions only grow, whatever order they arrive in (P21); no key is made; a run that was shut for its losses
--         (shut.lua) stays shut, also when a change decided before is carried after.

if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then return 'role' end
local meta = redis.pcall('HMGET', KEYS[1], 'run', 'version', 'lost')
if meta.err or not meta[1] then return 'missing' end
if meta[1] ~= ARGV[1] then return 'other_run' end
if not meta[2] or not string.find(meta[2], '^%d+$') then return 'missing' end
if tonumber(meta[2]) >= tonumber(ARGV[2]) then return 'older' end
local expireAt = tonumber(ARGV[7])
if expireAt <= redis.call('TIME')[1] * 1000 then return 'past' end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'state', meta[3] == ARGV[1] and 'shut' or ARGV[3], 'opensAt', ARGV[4], 'endsAt', ARGV[5],
  'perBuyerLimit', ARGV[6])
local shards = #KEYS - 4
for k = 1, #KEYS do
  local spread = k < 5 and 0 or math.floor((k - 5) * 600000 / shards)
  redis.call('PEXPIREAT', KEYS[k], string.format('%.0f', expireAt + spread))
end
return 'done'
