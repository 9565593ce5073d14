-- A render that members share: the member that does it, or its result. KEYS: the key of the page. ARGV: the command,
-- then its arguments. The stored value begins with a letter, an incarnation and the number of an entry of its log:
--
--   l INCARNATION NUMBER TOKEN    a member is rendering the page (the leader)
--   r INCARNATION NUMBER REASON   the page cannot be shared
--   p INCARNATION NUMBER …        the page
--
-- A render that began before the asking member's position in the log is useless to that member.

local page, what = KEYS[1], ARGV[1]
local found = redis.call('GET', page)

local function is_own(token)
    return found and string.sub(found, 1, 2) == 'l ' and string.match(found, '^l %S+ %d+ (%S+)$') == token
end

if what == 'ask' then
    local incarnation, number, token, lead, discard = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
    if found and discard == '0' then
        local kind, log, at = string.match(string.sub(found, 1, 200), '^(%l) (%S+) (%d+) ')
        if log == incarnation and tonumber(at) >= number then
            if kind == 'l' then
                return { 'led', '' }
            elseif kind == 'r' then
                return { 'refused', '' }
            end
            return { 'page', found }
        end
    end
    local text = string.format('l %s %s %s', incarnation, ARGV[3], token)
    redis.call('SET', page, text, 'PX', lead)
    return { 'lead', '' }
elseif what == 'renew' then
    return { is_own(ARGV[2]) and redis.call('PEXPIRE', page, ARGV[3]) == 1 and 'own' or 'lost', '' }
elseif what == 'settle' then
    -- ARGV: token, the value to store (empty: the next member that asks becomes the leader), its lifetime, channel.
    if not is_own(ARGV[2]) then
        return { 'lost', '' }
    end
    if ARGV[3] == '' then
        redis.call('DEL', page)
    else
        redis.call('SET', page, ARGV[3], 'PX', ARGV[4])
    end
    redis.call('PUBLISH', ARGV[5], page)
    return { 'own', '' }
end
return redis.error_reply('what is ' .. what .. '?')
