#!lua
-- mark-landed: tells the marks of landed holds how they ended, and `meta` how far the landing has come.
--
-- Cost    O(holds given), at most 256
-- KEYS    1 meta   2… shards touched, each once
-- ARGV    1 run   2 number of the last landed entry
--         then four a hold: buyer id   order id   status letter (o ordered, d set aside)   index in KEYS of the shard
-- Returns marks changed; -1 where `meta` is of another run
-- Keeps   only a mark that still names the order and is still queued (or set aside) changes: a late repeat cannot reopen
--         a closed one.

local meta = redis.pcall('HMGET', KEYS[1], 'run', 'landed')
if meta.err or meta[1] ~= ARGV[1] then return -1 end
local changed = 0
for i = 3, #ARGV, 4 do
  local key = KEYS[tonumber(ARGV[i + 3])]
  local mark = redis.pcall('HGET', key, ARGV[i])
  if type(mark) == 'string' then
    local order, before, status, after = string.match(mark, '^(%d+)(|%d+|%d+|)(%a)(|.+)$')
    if order == ARGV[i + 1] and (status == 'q' or status == 'd') and status ~= ARGV[i + 2] then
      redis.call('HSET', key, ARGV[i], order .. before .. ARGV[i + 2] .. after)
      changed = changed + 1
    end
  end
end
if tonumber(ARGV[2]) > (tonumber(meta[2] or '') or 0) then redis.call('HSET', KEYS[1], 'landed', ARGV[2]) end
return changed
