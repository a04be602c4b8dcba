-- Takes the lease if nobody has it. KEYS: lease, seq, epoch. ARGV: the epoch of a
-- new store, our name, milliseconds, our process, the lease of a dead process.
-- The lease reads: epoch, name, fencing number, its end, process.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('GET', KEYS[1])
local fence = 0
if lease then
  local name, number, till = string.match(lease, '^%S+ (%S+) (%d+) (%d+)')
  if name ~= ARGV[2] and lease ~= ARGV[5] and tonumber(till) > now then
    return {0, lease, tonumber(till) - now}
  end
  fence = tonumber(number)
end
redis.call('SET', KEYS[3], ARGV[1], 'NX')
lease = string.format('%s %s %d %d %s', redis.call('GET', KEYS[3]), ARGV[2], fence + 1, now + ARGV[3], ARGV[4])
redis.call('SET', KEYS[1], lease)
return {1, lease, tonumber(redis.call('GET', KEYS[2]) or '0')}
