"""What runs on the Redis server: each script is one step that nothing else can come between.

Keys of one partition, which share its hash tag ``{prefix}``:

- ``{prefix}e:DIGEST`` an entry: eight bytes that stand for its versions, then ``stores.envelope``
- ``{prefix}v:TAG`` the tag's version, a decimal number
- ``{prefix}n:TAG`` how many entries were stored under that version

All keys of a script are declared, so that a cluster accepts it. A foreign value under one of them counts as absent.

A server that is full refuses a script whose first write needs memory, and lets one that has removed something go on. An
invalidation must not fail then, so it removes first; what it adds is small.
"""

from __future__ import annotations

from stratacache.stores.redis_nodes import Script

# KEYS: versions. ARGV: milliseconds that they are kept, and, if given, what those become that do not exist.
ENSURE = Script("""
local found = {}
local time = redis.call('TIME')
for i, key in ipairs(KEYS) do
  local version = redis.pcall('GET', key)
  if type(version) ~= 'string' or not tonumber(version) then
    version = ARGV[1 + i] or string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('SET', key, version, 'PX', ARGV[1])
  end
  found[i] = version
end
return found
""")

# KEYS: the entry, n versions, n counts. ARGV: value, milliseconds to keep it (0: remove what is there instead), those
# to keep versions, the n versions. Gives 1 when the versions were current, else 0.
PUT = Script("""
local n = (#KEYS - 1) / 2
for i = 1, n do
  if redis.pcall('GET', KEYS[1 + i]) ~= ARGV[3 + i] then return 0 end
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return 1
end
local same = redis.call('TYPE', KEYS[1]).ok == 'string' and
  redis.call('GETRANGE', KEYS[1], 0, 7) == string.sub(ARGV[1], 1, 8)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local keep = tonumber(ARGV[3])
for i = 1, n do
  if redis.call('PTTL', KEYS[1 + i]) < keep then redis.call('PEXPIRE', KEYS[1 + i], keep) end
  if not same then redis.pcall('INCR', KEYS[1 + n + i]) end -- a foreign value there must not fail what is stored
  if redis.call('PTTL', KEYS[1 + n + i]) < keep then redis.call('PEXPIRE', KEYS[1 + n + i], keep) end
end
return 1
""")

# KEYS: n versions, n counts, the entries to remove. ARGV: n, "bump" (to a new version), "raise" (to one that another
# part has, if that is higher) or "tell" (change nothing), milliseconds to keep versions, the n least versions to have.
# Gives: entries counted, entries removed, the versions.
INVALIDATE = Script("""
local n, what = tonumber(ARGV[1]), ARGV[2]
local function number(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and tonumber(value) or 0
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local counted, removed, versions = 0, 0, {}
for i = 1, n do
  local old, new = number(KEYS[i]), 0
  if what ~= 'tell' then new = tonumber(ARGV[3 + i]) end
  if what == 'bump' then new = math.max(new, old + 1, now) end
  versions[i] = string.format('%.0f', math.max(old, new))
  if what == 'tell' or new > old then counted = counted + number(KEYS[n + i]) end
  if new > old then
    redis.call('DEL', KEYS[n + i])
    redis.call('SET', KEYS[i], versions[i], 'PX', ARGV[3])
  end
end
for i = 2 * n + 1, #KEYS do
  removed = removed + redis.call(what == 'tell' and 'EXISTS' or 'DEL', KEYS[i])
end
return {counted, removed, versions}
""")

# KEYS: a mark. A write of the connection's own, for it to WAIT for: that passes over what other connections wrote.
MARK = Script("""
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], '1', 'PX', 1000)
""")
