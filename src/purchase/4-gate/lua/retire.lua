#!lua
-- retire: closes the gate of one segment for good under the next number, because its preheat was taken back before the sale.
--
-- Cost    O(1)
-- KEYS    1 meta
-- ARGV    1 the run that nothing is sold under again, and every earlier one   2 the number that takes its place
-- Returns 1 nothing sells under that run, now and later
--         0 units were taken under it: it is not for taking back
-- Keeps   `run` only grows. A late hold, preheat or change of the old run finds another number; the keys of the old run are
--         left to their own end.

local meta = redis.pcall('HMGET', KEYS[1], 'run', 'seq')
-- a gate that is gone, or no gate at all, sells nothing (hold.lua)
if meta.err or not meta[1] or not string.find(meta[1], '^%d+$') then return 1 end
if tonumber(meta[1]) > tonumber(ARGV[1]) then return 1 end
if meta[2] and meta[2] ~= '0' then return 0 end
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'state', 'shut')
return 1
