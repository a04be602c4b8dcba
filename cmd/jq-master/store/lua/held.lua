-- Begins every transition. KEYS: lease, seq, …; ARGV: the lease's text up to and including our
-- fencing number, the last seq that was acknowledged to us, … Another epoch, or a seq that went
-- back, means that the store has lost data.
local held = redis.call('MGET', KEYS[1], KEYS[2])
local seq = tonumber(held[2] or '0')
if not held[1] or string.sub(held[1], 1, 37) ~= string.sub(ARGV[1], 1, 37) or seq < tonumber(ARGV[2]) then
  return redis.error_reply('LOST lease "' .. tostring(held[1]) .. '", seq ' .. seq .. ' after ' .. ARGV[2])
end
if string.sub(held[1], 1, #ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED lease is "' .. held[1] .. '"')
end
-- isForeign reports whether an answer says that a key has another type, so that it is not ours.
local function isForeign(answer)
  return type(answer) == 'table' and answer.err and string.find(answer.err, '^WRONGTYPE ') ~= nil
end
