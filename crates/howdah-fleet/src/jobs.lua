-- The scheduled jobs of a fleet. Each job has a row with its last run and that run's lock. The script reads and
-- changes the rows atomically. src/jobs.rs documents the fields.
--
-- KEYS: a hash. ARGV: how long a lock holds without being renewed (ms), the request as JSON.

local hash = KEYS[1]
local LOCK, message = tonumber(ARGV[1]), cjson.decode(ARGV[2])
-- How far a member's clock may be ahead (s). One that is further ahead would claim runs that are not due.
local AHEAD = 300

local function info(section, name)
    return string.match(redis.call('INFO', section), name .. ':(%w+)') or ''
end

-- TIME is not used, so that the permissions that the registry needs are sufficient.
local now = math.floor(tonumber(info('server', 'server_time_usec')) / 1000)
local incarnation = info('server', 'run_id') .. '.' .. info('replication', 'master_replid')

local rows, changed = {}, {}
local all = redis.call('HGETALL', hash)
local seen
for at = 1, #all, 2 do
    local job = string.match(all[at], '^job:(.*)$')
    if job then
        rows[job] = cjson.decode(all[at + 1])
    elseif all[at] == 'seen' then
        seen = cjson.decode(all[at + 1])
    end
end

local function runs(row)
    return row.token ~= '' and row.ended == 0
end

-- If Valkey has lost rows, members report them within the duration of a lock. If it was hung, no lock was renewed
-- meanwhile, so all locks are extended.
if not seen or seen.incarnation ~= incarnation then
    seen = { incarnation = incarnation, since = now, at = now }
elseif now < seen.at or now - seen.at > LOCK / 2 then
    seen.since = math.min(seen.since, now)
    for job, row in pairs(rows) do
        if runs(row) then
            row['until'] = now + LOCK
            changed[job] = true
        end
    end
end
seen.at = now
redis.call('HSET', hash, 'seen', cjson.encode(seen))

local replaced, lost = {}, {}
for job, run in pairs(message.runs) do
    local row = rows[job]
    if not row or row.at < run.at then
        -- Valkey has lost the row.
        run.decided = math.max(run.decided, row and row.decided or 0)
        run['until'] = now + LOCK
        rows[job] = run
        changed[job] = true
    elseif row.token == run.token then
        row.ended, row.how, row.good = run.ended, run.how, run.good
        row['until'] = now + LOCK
        changed[job] = true
    elseif run.ended == 0 then
        replaced[job] = row.member
    end
end

for job, row in pairs(rows) do
    if runs(row) and row['until'] <= now then
        row.ended, row.good = math.floor(now / 1000), false
        row.how = row.member .. ' was not heard any more'
        changed[job] = true
        lost[job] = row.member
    end
end

local function claim(job, claim)
    if now - seen.since < LOCK then
        return { 'wait', tostring(LOCK - now + seen.since) }
    end
    local row = rows[job] or { at = 0, decided = 0, token = '', member = '', ended = 0 }
    if row.token == claim.token and runs(row) then
        -- The reply to an earlier request with this claim was lost.
        return { 'yours', tostring(row.at) }
    end
    -- An instant of 0 means that the run was started by hand.
    if claim.instant > 0 then
        if claim.instant > now / 1000 + AHEAD then
            return { 'ahead', tostring(math.floor(claim.instant * 1000 - now)) }
        end
        -- A time that was decided by a clock far ahead is ignored.
        if claim.instant <= row.decided and row.decided <= now / 1000 + AHEAD then
            return { 'taken', row.member }
        end
        row.decided = claim.instant
        rows[job] = row
        changed[job] = true
    end
    if runs(row) then
        return { 'runs', row.member }
    end
    rows[job] = {
        at = now, decided = row.decided, token = claim.token, member = claim.member,
        ['until'] = now + LOCK, ended = 0, how = '', good = false,
    }
    changed[job] = true
    return { 'yours', tostring(now) }
end

local claims = {}
for job, wanted in pairs(message.claims) do
    claims[job] = claim(job, wanted)
end
for job in pairs(changed) do
    redis.call('HSET', hash, 'job:' .. job, cjson.encode(rows[job]))
end
return cjson.encode({ claims = claims, rows = rows, replaced = replaced, lost = lost })
