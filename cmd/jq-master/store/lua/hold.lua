-- Renews the lease under the fencing number given, or gives it back with 0 milliseconds. From then
-- on, commands that a dead connection sent under a lower number fail, even if the server reads them
-- later; therefore numbers only rise. It also removes up to 1,000 idempotency keys that have ended,
-- and shortens up to 1,000 that were stored while the clock was ahead. KEYS: lease, seq, the set of
-- these keys, standbys, clock. ARGV: epoch and name, acknowledged seq, number, milliseconds, the master's time
-- in milliseconds since 1970, the latest end that a key may have. It returns the number of standbys that can serve, and the time.
local lease, seq = redis.call('GET', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0')
if not lease or string.sub(lease, 1, 37) ~= string.sub(ARGV[1], 1, 37) or seq < tonumber(ARGV[2]) then
  return redis.error_reply('LOST lease "' .. tostring(lease) .. '", seq ' .. seq .. ' after ' .. ARGV[2])
end
if string.sub(lease, 1, #ARGV[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED lease is "' .. lease .. '"')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- This fails here if the key is of another type, and not after the lease was written.
local ended = redis.call('ZRANGE', KEYS[3], '-inf', ARGV[5], 'BYSCORE', 'LIMIT', 0, 1000)
local number, process = string.match(lease, '^%S+ %S+ (%d+) %d+ (.*)')
if tonumber(number) <= tonumber(ARGV[3]) then
  redis.call('SET', KEYS[1], string.format('%s%s %d %s', ARGV[1], ARGV[3], now + ARGV[4], process))
  redis.call('SET', KEYS[5], string.format('%d %d', now + ARGV[4], ARGV[5] - now)) -- see take.lua
end
if #ended > 0 then
  redis.call('DEL', unpack(ended))
  redis.call('ZREM', KEYS[3], unpack(ended))
end
for _, key in ipairs(redis.call('ZRANGE', KEYS[3], '(' .. ARGV[6], '+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
  redis.call('ZADD', KEYS[3], ARGV[6], key)
end
local able = redis.pcall('ZCOUNT', KEYS[4], '(' .. now, now + ARGV[4])
return {type(able) == 'number' and able or 0, now}
