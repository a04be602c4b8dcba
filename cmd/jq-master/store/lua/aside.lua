-- Sets aside a key that cannot be read. KEYS: lease, seq, the key, its new name.
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('RENAME', KEYS[3], KEYS[4])
end
return redis.call('INCR', KEYS[2])
