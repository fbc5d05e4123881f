#!lua
-- remove: ends keys of a run whose books are closed; Redis frees what they hold in the background.
--
-- Cost    O(keys)
-- KEYS    1… keys of one segment, or the snapshot   ARGV    none
-- Returns how many were there
-- Keeps   nothing: it is for settled activities, whose holds have all landed.

local there = 0
for k = 1, #KEYS do there = there + redis.call('UNLINK', KEYS[k]) end
return there
