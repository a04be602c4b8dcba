-- Undoes an enqueueing whose outcome is unknown. KEYS and ARGV[3] are as in enqueue.lua.
local first = 4
redis.call('ZCARD', KEYS[3]) -- fails here if a key is of another type, and not after something was removed
if ARGV[3] ~= '' then
  first = 6
  redis.call('ZCARD', KEYS[5])
  if redis.call('GET', KEYS[4]) == ARGV[3] then
    redis.call('DEL', KEYS[4])
    redis.call('ZREM', KEYS[5], KEYS[4])
  end
end
for i = first, #KEYS do
  local state = redis.pcall('HGET', KEYS[i], 'state')
  if isForeign(state) then
    redis.call('ZREM', KEYS[3], string.sub(KEYS[i], -36))
  elseif type(state) == 'table' then
    return state
  elseif state == 'queued' or not state then -- it may be among the live ones, but not written
    redis.call('DEL', KEYS[i])
    redis.call('ZREM', KEYS[3], string.sub(KEYS[i], -36))
  end
end
return redis.call('INCR', KEYS[2])
