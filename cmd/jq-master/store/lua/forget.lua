-- Removes jobs that have ended. KEYS: lease, seq, ended, results, jobs.
for i = 5, #KEYS do
  local id = string.sub(KEYS[i], -36)
  if redis.call('ZSCORE', KEYS[3], id) then
    redis.call('ZREM', KEYS[4], id)
    redis.call('DEL', KEYS[i])
    redis.call('ZREM', KEYS[3], id) -- at last, so that a repeat finds what is left
  end
end
return redis.call('INCR', KEYS[2])
