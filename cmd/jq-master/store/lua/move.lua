-- Moves one job to another state. KEYS: lease, seq, job, live, ended, results.
-- ARGV: …, the states it may come from, the attempt it comes from, the new state,
-- the new attempt, where it goes ('' stays, 'live', 'ended'), the score there, the
-- score in results or 0, then the fields that change.
local was = redis.call('HMGET', KEYS[3], 'state', 'attempt')
if not was[1] or not string.find(ARGV[3], was[1], 1, true) or was[2] ~= ARGV[4] then
  if was[1] == ARGV[5] and was[2] == ARGV[6] then
    return seq -- written before
  end
  return redis.error_reply('CONFLICT ' .. KEYS[3] .. ' is ' .. tostring(was[1]) .. ', attempt ' .. tostring(was[2]) ..
    ', not ' .. ARGV[3] .. ', attempt ' .. ARGV[4])
end
redis.call('HSET', KEYS[3], 'state', ARGV[5], 'attempt', ARGV[6], unpack(ARGV, 10))
if ARGV[7] ~= '' then
  local id = string.sub(KEYS[3], -36)
  redis.call('ZREM', ARGV[7] == 'live' and KEYS[5] or KEYS[4], id)
  redis.call('ZADD', ARGV[7] == 'live' and KEYS[4] or KEYS[5], ARGV[8], id)
  if ARGV[9] ~= '0' then
    redis.call('ZADD', KEYS[6], ARGV[9], id)
  end
end
return redis.call('INCR', KEYS[2])
