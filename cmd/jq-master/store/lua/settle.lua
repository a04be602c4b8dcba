-- Writes how far a schedule has come, with the jobs that are due of it. KEYS: lease, seq,
-- schedules, live, a key for each job. ARGV: …, the schedule's name and text, then for
-- each job its seq, how many words of fields follow, the fields.
if redis.call('HGET', KEYS[3], ARGV[3]) == ARGV[4] then
  return seq -- written before
end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
local at, places = 5, {}
for i = 5, #KEYS do
  local words = tonumber(ARGV[at + 1])
  redis.call('DEL', KEYS[i]) -- one that could not be read
  redis.call('HSET', KEYS[i], 'state', 'queued', 'seq', ARGV[at], unpack(ARGV, at + 2, at + 1 + words))
  places[#places + 1] = ARGV[at]
  places[#places + 1] = string.sub(KEYS[i], -36)
  seq = math.max(seq, tonumber(ARGV[at]))
  at = at + 2 + words
end
if #places > 0 then
  redis.call('ZADD', KEYS[4], unpack(places))
end
redis.call('SET', KEYS[2], string.format('%d', seq + 1))
return seq + 1
