-- store writes new jobs, whose keys are KEYS[first] and those after it, adds them to the live jobs,
-- and returns the last seq. ARGV from 5: for each job its seq, the number of words that its fields
-- take, the fields.
local function store(live, first)
  local at, last, places = 5, 0, {}
  for i = first, #KEYS do
    local words = tonumber(ARGV[at + 1])
    redis.call('HSET', KEYS[i], 'state', 'queued', 'seq', ARGV[at], unpack(ARGV, at + 2, at + 1 + words))
    places[#places + 1] = ARGV[at]
    places[#places + 1] = string.sub(KEYS[i], -36)
    last = math.max(last, tonumber(ARGV[at]))
    at = at + 2 + words
  end
  if #places > 0 then
    redis.call('ZADD', live, unpack(places))
  end
  return last
end
