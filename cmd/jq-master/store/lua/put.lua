-- Sets one field of a hash, or removes it. KEYS: lease, seq, hash. ARGV: …, the
-- field, its value or ''.
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[3], ARGV[3])
else
  redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
end
return redis.call('INCR', KEYS[2])
