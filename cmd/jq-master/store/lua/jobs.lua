-- A new job is noted by note, and is then among the live ones before write writes it: if a command fails
-- in between, a repeat finds the last job of the request missing and does all of it again. ARGV from at:
-- for each job its seq, the number of words that its fields take, the fields. list adds the noted jobs
-- to the live ones, and returns the last seq.
local places, begin, last = {}, {}, 0
local function note(first, n, at)
  for i = first, first + n - 1 do
    places[#places + 1] = ARGV[at]
    places[#places + 1] = string.sub(KEYS[i], -36)
    last = math.max(last, tonumber(ARGV[at]))
    begin[i] = at
    at = at + 2 + tonumber(ARGV[at + 1])
  end
end
local function list(live)
  if #places > 0 then
    redis.call('ZADD', live, unpack(places))
  end
  return last
end
-- If a job cannot be written, write removes those that it has written and listed, and returns the error.
local function write(first, live)
  for i = first, #KEYS do
    local at = begin[i]
    local answer = at and redis.pcall('HSET', KEYS[i], 'state', 'queued', 'seq', ARGV[at], unpack(ARGV, at + 2, at + 1 + tonumber(ARGV[at + 1])))
    if type(answer) == 'table' then
      for k = first, i - 1 do
        if begin[k] then
          redis.pcall('DEL', KEYS[k])
        end
      end
      for n = 2, #places, 2 do
        redis.pcall('ZREM', live, places[n])
      end
      return answer
    end
  end
end
