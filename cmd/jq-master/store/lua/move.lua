-- Moves jobs to other states, each on its own. KEYS: lease, seq, live, ended, results, a key for each
-- job. ARGV: …, for each job the number of words that follow: the states it may have now, its new
-- number of transitions, the new state, the new attempt, the set it moves to ('live', 'ended', '' to
-- stay), the score there, the score in results or 0, then the fields that change. It returns seq, and
-- for each job that cannot move its index, from 1, and why. A job is at all times in the set of its
-- state, even if a command fails in between: then a repeat does the rest.
for i = 3, 5 do
  redis.call('ZCARD', KEYS[i]) -- fails here if a key is of another type, and not after jobs were written
end
local answer, begin = {seq}, {}
local sets = {live = {}, ended = {}, results = {}}
local left = {live = {}, ended = {}}
local function add(set, score, id)
  set[#set + 1] = score
  set[#set + 1] = id
end
local at = 3
for i = 6, #KEYS do
  local from, rev, state, where = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 5]
  local was = redis.pcall('HMGET', KEYS[i], 'state', 'rev')
  local done = tonumber(was[2] or '0')
  local before = was[1] == state and done == tonumber(rev) -- written before
  if was.err then
    add(answer, i - 5, was.err .. ' ' .. KEYS[i])
  elseif not before and (not was[1] or not string.find(from, was[1], 1, true) or done ~= rev - 1) then
    add(answer, i - 5, 'CONFLICT ' .. KEYS[i] .. ' is ' .. tostring(was[1]) .. ' after ' .. tostring(done) ..
      ' transitions, so that it cannot become ' .. state .. ' with number ' .. rev)
  else
    if not before then
      begin[#begin + 1] = at
      begin[#begin + 1] = i
    end
    if where ~= '' then
      local id = string.sub(KEYS[i], -36)
      local old = left[where == 'live' and 'ended' or 'live']
      old[#old + 1] = id
      add(sets[where], ARGV[at + 6], id)
      if ARGV[at + 7] ~= '0' then
        add(sets.results, ARGV[at + 7], id)
      end
    end
  end
  at = at + 1 + ARGV[at]
end
local keys = {live = KEYS[3], ended = KEYS[4], results = KEYS[5]}
for name, set in pairs(sets) do
  if #set > 0 then
    redis.call('ZADD', keys[name], unpack(set))
  end
end
for n = 1, #begin, 2 do
  local at = begin[n]
  redis.call('HSET', KEYS[begin[n + 1]], 'state', ARGV[at + 3], 'rev', ARGV[at + 2], 'attempt', ARGV[at + 4],
    unpack(ARGV, at + 8, at + ARGV[at]))
end
for name, old in pairs(left) do
  if #old > 0 then
    redis.call('ZREM', keys[name], unpack(old))
  end
end
if #begin > 0 then
  answer[1] = redis.call('INCR', KEYS[2])
end
return answer
