-- Removes jobs that have ended. KEYS: lease, seq, ended, results, jobs.
for i = 5, #KEYS do
  local id = string.sub(KEYS[i], -36)
  if redis.call('ZREM', KEYS[3], id) == 1 then
    redis.call('ZREM', KEYS[4], id)
    redis.call('DEL', KEYS[i])
  end
end
return redis.call('INCR', KEYS[2])
