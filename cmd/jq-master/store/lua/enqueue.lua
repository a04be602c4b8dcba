-- Stores the new jobs of some requests, or of one that has an idempotency key. KEYS: lease, seq, live;
-- if ARGV[3] is not empty, an idempotency key and the set of such keys by their end; a key for each
-- job. ARGV: …, the value of the idempotency key, the master's time and the key's end in milliseconds
-- since 1970; for each request the number of its jobs, the number of words that they take, the jobs
-- as note expects them.
local start, at, new = first, 6, 0
while first <= #KEYS do
  local n = tonumber(ARGV[at])
  if redis.call('EXISTS', KEYS[first + n - 1]) == 0 then -- otherwise all of them were written before
    note(first, n, at + 2)
    new = new + n
  end
  first = first + n
  at = at + 2 + ARGV[at + 1]
end
if new > 0 then
  seq = math.max(seq + new, list(KEYS[3]))
  redis.call('SET', KEYS[2], string.format('%d', seq))
  local failed = write(start, KEYS[3])
  if failed then
    return failed
  end
end
if ARGV[3] ~= '' then
  -- hold.lua removes the key. Redis drops it a year later, by its own clock, in case it is not in the set.
  redis.call('SET', KEYS[4], ARGV[3], 'EX', 366 * 86400)
  redis.call('ZADD', KEYS[5], ARGV[5], KEYS[4])
end
return seq
