-- The registry of a fleet. The script reads and changes it atomically. tests/model/registry.rs models its behaviour for
-- the model checker. The names are those of src/protocol/message.rs.
--
-- KEYS: a hash and a stream in the same hash slot. ARGV: a random word, the channel of hints, then the request.
-- Numbers that may be large are passed as text, because Lua's numbers are doubles.

local hash, log = KEYS[1], KEYS[2]
local KEPT = 1024

local function info(section, name)
    return string.match(redis.call('INFO', section), name .. ':(%w+)') or ''
end

local function get(field)
    return redis.call('HGET', hash, field)
end

-- The run ID of Valkey, its replication ID, and a random word that is drawn when the registry is found empty.
local epoch = get('epoch')
if not epoch then
    epoch = ARGV[1]
    redis.call('HSET', hash, 'epoch', epoch, 'head', 0)
    redis.call('DEL', log)
end
local incarnation = epoch .. '.' .. info('server', 'run_id') .. '.' .. info('replication', 'master_replid')
local head = tonumber(get('head'))

-- The fields of a row: count, position, replaced, fresh, name.
local function read(text)
    local count, position, replaced, fresh, name = string.match(text, '^(%d+) (%d+) (%d) (%d) (.*)$')
    return { count = tonumber(count), position = tonumber(position), replaced = replaced, fresh = fresh, name = name }
end

local function write(session, row)
    local text = string.format('%d %d %s %s %s', row.count, row.position, row.replaced, row.fresh, row.name)
    redis.call('HSET', hash, 'm:' .. session, text)
end

local function rows()
    local all = redis.call('HGETALL', hash)
    local found = {}
    for at = 1, #all, 2 do
        local session = string.match(all[at], '^m:(.*)$')
        if session then
            found[session] = read(all[at + 1])
        end
    end
    return found
end

local kind, session = ARGV[3], ARGV[4]
local outcome, count, position = 'done', 0, head

-- Returns the row of the session, or a false value if it has ended or belongs to another incarnation.
local function own()
    local text = ARGV[5] == incarnation and get('m:' .. session)
    local row = text and read(text)
    return row and row.replaced == '0' and row
end

if kind == 'join' then
    local name = ARGV[5]
    local known = cjson.decode(ARGV[6])
    local fresh = ARGV[7]
    local names = { [name] = true }
    for other, row in pairs(rows()) do
        names[row.name] = true
        if row.name == name then
            fresh = '0'
            if other == ARGV[8] then
                redis.call('HDEL', hash, 'm:' .. other)
            else
                row.replaced = '1'
                write(other, row)
            end
        end
    end
    for _, other in ipairs(known) do
        if not names[other[2]] then
            names[other[2]] = true
            write(other[1], { count = 0, position = 0, replaced = '0', fresh = '0', name = other[2] })
        end
    end
    write(session, { count = 0, position = head, replaced = '0', fresh = fresh, name = name })
elseif kind == 'sync' then
    local row = own()
    if not row then
        outcome = 'unknown'
    elseif string.format('%d', row.count) ~= ARGV[6] then
        outcome, count = 'step', row.count
    else
        local message = cjson.decode(ARGV[8])
        count, position = row.count + 1, tonumber(ARGV[7])
        row.count, row.position = count, position
        write(session, row)
        if message.settled then
            redis.call('HSET', hash, 'settled', incarnation)
        end
        local over, forgets, fenced = {}, {}, {}
        for _, other in ipairs(message.over) do over[other] = true end
        for _, name in ipairs(message.forgets) do forgets[name] = true end
        for _, one in ipairs(message.fenced) do fenced[one[1]] = one[2] end
        if next(over) or next(forgets) or next(fenced) then
            for other, found in pairs(rows()) do
                if over[other] and found.replaced == '1' then
                    redis.call('HDEL', hash, 'm:' .. other)
                elseif forgets[found.name] or fenced[other] == string.format('%d', found.count) then
                    found.replaced = '1'
                    write(other, found)
                end
            end
        end
        if #message.entries > 0 then
            local first = head + 1
            for _, entry in ipairs(message.entries) do
                head = head + 1
                redis.call('XADD', log, 'MAXLEN', KEPT, string.format('%d-0', head), 'author', session, 'entry', entry)
            end
            redis.call('HSET', hash, 'head', string.format('%d', head))
            local hint = { incarnation = incarnation, author = session, first = first, entries = message.entries }
            redis.call('PUBLISH', ARGV[2], cjson.encode(hint))
        end
    end
elseif kind == 'leave' then
    if own() then
        redis.call('HDEL', hash, 'm:' .. session)
    else
        outcome = 'unknown'
    end
end

local records = {}
if position < head and head - position <= KEPT then
    for _, found in ipairs(redis.call('XRANGE', log, string.format('%d-0', position + 1), '+')) do
        records[#records + 1] = { tonumber(string.match(found[1], '^%d+')), found[2][2], found[2][4] }
    end
end
local members = {}
for other, row in pairs(rows()) do
    members[#members + 1] = { other, row.name, row.count, row.position, tonumber(row.replaced), tonumber(row.fresh) }
end
local settled = get('settled') == incarnation and 1 or 0
return { incarnation, settled, outcome, count, head, records, members }
