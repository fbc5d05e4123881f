#!lua
-- give-back: returns the units of one order to the gate, once, and closes the buyer's mark (design §6).
--
-- Cost    O(1)
-- KEYS    1 meta   2 stock   3 the buyer's shard
-- ARGV    1 run read by the statement that ended the order   2 buyer id   3 order id   4 units that go back
--         5 closed status letter   6 mark of the buyer's live order, or ''
-- Returns 1 done now   0 nothing to do: the mark is closed already, gone, or of another order
--         -1 not now: another run, not built, another server, a key missing, of the wrong type or unreadable; ask again
--            later: a rebuild is due, and counts this order's end
-- Keeps   units return only with the open mark that names this order, and only to a stock key that exists: a repeat does
--         nothing, and no key is made. Works under pause and after the end too.

local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return -1 end
local meta = redis.pcall('HMGET', KEYS[1], 'run', 'fence', 'state', 'moved')
if meta.err or meta[1] ~= ARGV[1] then return -1 end
if meta[2] ~= string.match(info, 'master_replid:(%x+)') then return -1 end
if meta[3] ~= 'open' and meta[3] ~= 'paused' and meta[3] ~= 'ended' then return -1 end
-- INCRBY and HINCRBY refuse what is no number, and a Lua error would keep the writes before it
if not meta[4] or #meta[4] > 15 or not string.find(meta[4], '^%d+$') then return -1 end
local stock = redis.pcall('GET', KEYS[2])
if type(stock) ~= 'string' or not (stock == '0' or string.find(stock, '^[1-9]%d*$')) or #stock > 10 then return -1 end
local got = redis.pcall('HMGET', KEYS[3], '#', ARGV[2])
if got.err or not got[1] then return -1 end

local mark = got[2]
if not mark then return 0 end
local order, before, status, after = string.match(mark, '^(%d+)(|%d+|%d+|)(%a)(|.+)$')
if not order then return -1 end
if order ~= ARGV[3] or not string.find(status, '%l') then return 0 end

if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[2], ARGV[6])
else
  redis.call('HSET', KEYS[3], ARGV[2], order .. before .. ARGV[5] .. after)
end
if ARGV[4] ~= '0' then redis.call('INCRBY', KEYS[2], ARGV[4]) end
redis.call('HINCRBY', KEYS[1], 'moved', 1)
return 1
