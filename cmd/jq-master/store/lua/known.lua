-- Answers with the value of an idempotency key that was used before. KEYS and ARGV are as in enqueue.lua.
local first = 4
if ARGV[3] ~= '' then
  first = 6
  local kind = redis.call('TYPE', KEYS[4]).ok
  local known = kind == 'string' and redis.call('GET', KEYS[4])
  if kind ~= 'none' and (not known or #known < 48 or #known % 16 ~= 0) then
    return redis.error_reply('UNREADABLE ' .. KEYS[4] .. ' is a ' .. kind .. ' that has no ids')
  end
  -- This fails here if the set is of another type, and not after jobs were written.
  local ends = redis.call('ZSCORE', KEYS[5], KEYS[4])
  if known and known ~= ARGV[3] and (not ends or tonumber(ends) > tonumber(ARGV[4])) then
    return known
  end
end
