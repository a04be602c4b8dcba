-- Drops results. KEYS: lease, seq, results, jobs.
redis.call('ZCARD', KEYS[3]) -- fails here if the key is of another type, and not after results were dropped
for i = 4, #KEYS do
  local answer = redis.pcall('HDEL', KEYS[i], 'result', 'drop')
  if type(answer) == 'table' and not isForeign(answer) then
    return answer
  end
  redis.call('ZREM', KEYS[3], string.sub(KEYS[i], -36))
end
return redis.call('INCR', KEYS[2])
