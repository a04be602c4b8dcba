-- store writes n new jobs, whose keys are KEYS[first] and those after it. ARGV from at: for each job
-- its seq, the number of words that its fields take, the fields. list adds all jobs that were written
-- to the live ones, and returns the last seq.
local places, last = {}, 0
local function store(first, n, at)
  for i = first, first + n - 1 do
    local words = tonumber(ARGV[at + 1])
    redis.call('HSET', KEYS[i], 'state', 'queued', 'seq', ARGV[at], unpack(ARGV, at + 2, at + 1 + words))
    places[#places + 1] = ARGV[at]
    places[#places + 1] = string.sub(KEYS[i], -36)
    last = math.max(last, tonumber(ARGV[at]))
    at = at + 2 + words
  end
end
local function list(live)
  if #places > 0 then
    redis.call('ZADD', live, unpack(places))
  end
  return last
end
