#!lua
-- hold: decides a batch of purchases of one segment, one after another, then writes all that were held at once.
--
-- Cost    once: INFO replication, HMGET meta, GET stock, TYPE outbox, TIME; one HMGET and at most one HSET a shard touched.
-- KEYS    1 meta   2 stock   3 outbox   4… shards of buyers touched by this batch, each once
-- ARGV    1 run of the caller   2 notAfter, epoch ms in Redis time: a script that starts later writes nothing
--         3 at most 128 purchases in one text, `order,buyer,request,quantity,index;` each, index in KEYS of the buyer's shard:
--           one argument costs client and server a tenth of what five a purchase do, and a hold's row of the outbox is a
--           piece of it. The caller has checked that no part holds a comma or a semicolon.
-- Returns {0, reason}   nothing was looked at: every purchase is `not_ready`
--                     late | role | meta type | meta missing | run | fence | shut | meta value | stock type | stock missing |
--                     stock value | outbox | buyers type | buyers missing | mark value
--         {1, now, left, codes, marks, opensAt}
--           now     Redis time, epoch ms
--           left    units after the batch
--           codes   one number a purchase, first match wins (docs/results.md):
--                   -7 malformed quantity  -6 key_reused   2 replayed  -2 already_bought  -3 not_open  -4 paused  -5 ended
--                   -7 above the limit      0 sold_out     1 held
--           marks   one string for each 2 and -2, in order: the buyer's mark
-- Keeps   stock, buyer mark and outbox entry change together or not at all. A Lua error would keep earlier writes, so
--         every type and value is checked before the first write. The first line lets a read-only, cut-off or full server
--         refuse the script before it starts (P18).

local now
do
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
if now > tonumber(ARGV[2]) then return {0, 'late'} end

local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then return {0, 'role'} end

local meta = redis.pcall('HMGET', KEYS[1], 'run', 'fence', 'state', 'opensAt', 'endsAt', 'perBuyerLimit', 'seq')
if meta.err then return {0, 'meta type'} end
if not meta[1] then return {0, 'meta missing'} end
if meta[1] ~= ARGV[1] then return {0, 'run'} end
if meta[2] ~= string.match(info, 'master_replid:(%x+)') then return {0, 'fence'} end
local state = meta[3]
if state ~= 'open' and state ~= 'paused' and state ~= 'ended' then return {0, 'shut'} end
-- tonumber takes 'nan', '0x10' and blanks, and no comparison with nan holds: a window or limit of nan would let all pass.
-- So here and below: a plain decimal or nothing.
for i = 4, 7 do
  local value = meta[i]
  if not value or #value > 15 or not (value == '0' or string.find(value, '^[1-9]%d*$')) then return {0, 'meta value'} end
end
local opensAt, endsAt, limit, seq = tonumber(meta[4]), tonumber(meta[5]), tonumber(meta[6]), tonumber(meta[7])
if limit == 0 then return {0, 'meta value'} end

local stock = redis.pcall('GET', KEYS[2])
if type(stock) == 'table' then return {0, 'stock type'} end
if not stock then return {0, 'stock missing'} end
if not (stock == '0' or string.find(stock, '^[1-9]%d*$')) or #stock > 10 then return {0, 'stock value'} end
local left = tonumber(stock)

if redis.call('TYPE', KEYS[3]).ok ~= 'stream' then return {0, 'outbox'} end

-- the marks of this batch's buyers, kept up to date as we go: two presses of one buyer may stand in one batch (P23)
local presses = ARGV[3]
local orders, buyers, requests, quantities, shards, starts, ends = {}, {}, {}, {}, {}, {}, {}
local marks, asks, count = {}, {}, 0
for from, order, buyer, request, wanted, to, index in
  string.gmatch(presses, '()([^,]*),([^,]*),([^,]*),([^,]*)(),(%d+);') do
  local k = tonumber(index)
  count = count + 1
  orders[count], buyers[count], requests[count], quantities[count] = order, buyer, request, wanted
  shards[count], starts[count], ends[count] = k, from, to - 1
  local ask = asks[k]
  if ask then ask[#ask + 1] = buyer else asks[k] = {'#', buyer} end
end
for k, ask in pairs(asks) do
  local got = redis.pcall('HMGET', KEYS[k], unpack(ask))
  if got.err then return {0, 'buyers type'} end
  if not got[1] then return {0, 'buyers missing'} end
  for j = 2, #ask do
    local mark = got[j]
    if mark then
      -- the shape of domain/mark.ts and nothing wider: what is told must be readable there
      local orderEnd, keyStart =
        string.match(mark, '^[1-9]%d*()|[1-9]%d?%d?%d?|[1-9]%d*|[qodpCERSANL]|()[%w_.:-]+$')
      if not orderEnd or orderEnd > 20 or #mark < keyStart + 7 or #mark > keyStart + 63 then return {0, 'mark value'} end
      marks[ask[j]] = mark
    end
  end
end

local codes, told, taken, writes, total = {}, {}, {}, {}, 0
for i = 1, count do
  local buyer, request, wanted = buyers[i], requests[i], quantities[i]
  local code
  local mark = marks[buyer]
  if not string.find(wanted, '^[1-9]%d?%d?%d?$') then
    code = -7
  elseif mark then
    local quantity, status, key = string.match(mark, '^%d+|(%d+)|%d+|(%a)|(.+)$')
    if key == request then
      if quantity == wanted then code = 2 else code = -6 end
    elseif string.find(status, '%l') then
      code = -2
    end
    if code == 2 or code == -2 then told[#told + 1] = mark end
  end
  if not code then
    local quantity = tonumber(wanted)
    if now < opensAt then code = -3
    elseif state == 'paused' then code = -4
    elseif state == 'ended' or now >= endsAt then code = -5
    elseif quantity > limit then code = -7
    elseif left < quantity then code = 0
    else
      code = 1
      left = left - quantity
      total = total + quantity
      mark = orders[i] .. '|' .. wanted .. '|' .. ARGV[1] .. '|q|' .. request
      marks[buyer] = mark
      taken[#taken + 1] = string.sub(presses, starts[i], ends[i])
      local fields = writes[shards[i]]
      if not fields then fields = {}; writes[shards[i]] = fields end
      fields[#fields + 1] = buyer
      fields[#fields + 1] = mark
    end
  end
  codes[i] = code
end

if total > 0 then
  seq = string.format('%.0f', seq + 1)
  redis.call('XADD', KEYS[3], 'NOMKSTREAM', '*', 'n', seq, '1', table.concat(taken, ';'))
  redis.call('HSET', KEYS[1], 'seq', seq)
  for k = 4, #KEYS do
    if writes[k] then redis.call('HSET', KEYS[k], unpack(writes[k])) end
  end
  redis.call('DECRBY', KEYS[2], total)
end
return {1, now, left, codes, told, opensAt}
