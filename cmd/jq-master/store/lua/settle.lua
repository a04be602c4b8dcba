-- Writes the progress of a schedule, with its due jobs. KEYS: lease, seq, schedules, live, a key
-- for each job. ARGV: …, the schedule's name and text, then the jobs as store expects them.
if redis.call('HGET', KEYS[3], ARGV[3]) == ARGV[4] then
  return seq -- written before
end
redis.call('ZCARD', KEYS[4]) -- fails here if the key is of another type, and not after all was written
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
for i = 5, #KEYS do
  redis.call('DEL', KEYS[i]) -- it may hold a job that could not be read
end
store(5, #KEYS - 4, 5)
seq = math.max(seq, list(KEYS[4]))
redis.call('SET', KEYS[2], string.format('%d', seq + 1))
return seq + 1
