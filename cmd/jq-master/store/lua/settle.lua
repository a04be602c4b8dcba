-- Writes the progress of a schedule, with its due jobs. KEYS: lease, seq, schedules, live, a key
-- for each job. ARGV: …, the schedule's name and text, then the jobs as note expects them.
if redis.call('HGET', KEYS[3], ARGV[3]) == ARGV[4] then
  return seq -- written before
end
note(5, #KEYS - 4, 5)
seq = math.max(seq, list(KEYS[4])) + 1
redis.call('SET', KEYS[2], string.format('%d', seq))
for i = 5, #KEYS do
  redis.call('DEL', KEYS[i]) -- it may hold a job that could not be read
end
local failed = write(5, KEYS[4])
if failed then
  return failed
end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
return seq
