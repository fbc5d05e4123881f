#!lua
-- shut: closes the gate of one segment until a rebuild, because something of the run was lost.
--
-- Cost    O(1)
-- KEYS    1 meta   ARGV    1 run
-- Returns 1 shut now or already   0 another run or none
-- Keeps   nothing but `state` changes, and `lost`, the run that gate-change.lua must not open again: the rebuild brings a
--         new one.

local run = redis.pcall('HGET', KEYS[1], 'run')
if run ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'state', 'shut', 'lost', ARGV[1])
return 1
