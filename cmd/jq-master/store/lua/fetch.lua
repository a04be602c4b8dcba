-- Drops results. KEYS: lease, seq, results, jobs.
for i = 4, #KEYS do
  redis.call('HDEL', KEYS[i], 'result', 'drop')
  redis.call('ZREM', KEYS[3], string.sub(KEYS[i], -36))
end
return redis.call('INCR', KEYS[2])
