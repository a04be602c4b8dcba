-- Moves one job to another state. KEYS: lease, seq, job, live, ended, results. ARGV: …, the states
-- it may have now, its new number of transitions, the new state, the new attempt, the set it moves
-- to ('live', 'ended', '' to stay), the score there, the score in results or 0, then the fields
-- that change.
local was = redis.call('HMGET', KEYS[3], 'state', 'rev')
local rev = tonumber(was[2] or '0')
if was[1] == ARGV[5] and rev == tonumber(ARGV[4]) then
  return seq -- written before
end
if not was[1] or not string.find(ARGV[3], was[1], 1, true) or rev ~= ARGV[4] - 1 then
  return redis.error_reply('CONFLICT ' .. KEYS[3] .. ' is ' .. tostring(was[1]) .. ' after ' .. rev ..
    ' transitions, so that it cannot become ' .. ARGV[5] .. ' with number ' .. ARGV[4])
end
redis.call('HSET', KEYS[3], 'state', ARGV[5], 'rev', ARGV[4], 'attempt', ARGV[6], unpack(ARGV, 10))
if ARGV[7] ~= '' then
  local id = string.sub(KEYS[3], -36)
  redis.call('ZREM', ARGV[7] == 'live' and KEYS[5] or KEYS[4], id)
  redis.call('ZADD', ARGV[7] == 'live' and KEYS[4] or KEYS[5], ARGV[8], id)
  if ARGV[9] ~= '0' then
    redis.call('ZADD', KEYS[6], ARGV[9], id)
  end
end
return redis.call('INCR', KEYS[2])
