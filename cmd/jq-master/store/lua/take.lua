-- Takes the lease if it is free. KEYS: lease, seq, epoch, standbys, clock. ARGV: the epoch for a new
-- store, our name, milliseconds, our process, the lease of a dead process, for how many
-- milliseconds others give way to us (0: we cannot serve, and give way to those that can). The set
-- of standbys that can serve is ordered by the end of that time. A lease consists of epoch, name,
-- fencing number, expiry, process. A lease that cannot be read is set aside, and the answer has its
-- new name; its owner will then see another lease. If another master has the lease, the answer has
-- the time and by how much the clock of that master is ahead of it.
local set = {}
local function read(key, pattern)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return nil
  end
  local value = kind == 'string' and redis.call('GET', key)
  if value and string.match(value, pattern) then
    return value
  end
  local name = string.gsub(key, '}:', '}:unreadable:', 1)
  redis.call('RENAME', key, name)
  set[#set + 1] = name
  return nil
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '(' .. now + ARGV[3], '+inf') -- written while the clock was ahead
redis.pcall('ZREM', KEYS[4], ARGV[2])
local lease = read(KEYS[1], '^%S+ %S+ %d+ %d+ ')
local fence = 0
if lease then
  local name, number, till = string.match(lease, '^%S+ (%S+) (%d+) (%d+)')
  if name ~= ARGV[2] and lease ~= ARGV[5] and tonumber(till) > now and tonumber(till) <= now + 10 * ARGV[3] then
    if ARGV[6] ~= '0' then
      redis.pcall('ZADD', KEYS[4], now + ARGV[6], ARGV[2])
    end
    local clock = redis.pcall('GET', KEYS[5])
    local at, ahead = string.match(type(clock) == 'string' and clock or '', '^(%d+) (%-?%d+)$')
    -- This is not known before that master has renewed its lease, nor if the time was set back since then.
    return {0, lease, now, at == till and tonumber(till) <= now + ARGV[3] and tonumber(ahead) or false}
  end
  fence = tonumber(number)
end
local able = redis.pcall('ZCARD', KEYS[4])
if ARGV[6] == '0' and type(able) == 'number' and able > 0 then
  return {2, '', able}
end
local seq = read(KEYS[2], '^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?%d?$') or '0'
if not read(KEYS[3], '^' .. string.rep('[%x%-]', 36) .. '$') then
  redis.call('SET', KEYS[3], ARGV[1])
end
lease = string.format('%s %s %d %d %s', redis.call('GET', KEYS[3]), ARGV[2], fence + 1, now + ARGV[3], ARGV[4])
redis.call('SET', KEYS[1], lease)
return {1, lease, tonumber(seq), unpack(set)}
